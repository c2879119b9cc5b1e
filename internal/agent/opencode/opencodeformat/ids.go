package opencodeformat

import (
	"crypto/sha256"
	"math/big"
	"strings"
)

// The agent orders messages by their ids, which begin with the time, so our ids must have the
// present time and not that of the run. The rest of an id is made from the run's id, and identifies
// a run's message in the stream and in the transcript.

const (
	base62   = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	idRandom = 14 // characters of an id after the time
)

// RunMark is what the ids of a run's message and of its part end with.
func RunMark(runID string) string { return hashed(runID, idRandom) }

// SteerMark is what the ids of a prompt end with that a run is given while it works.
func SteerMark(runID, promptID string) string {
	return steerWord + hashed(runID+"/steer/"+promptID, idRandom-len(steerWord))
}

// steerWord begins the marks of prompts that runs are given. The agent's own ids are random there.
const steerWord = "steered"

// IsSteered reports whether a message is a prompt that a run was given while it worked.
func IsSteered(messageID string) bool { return strings.HasPrefix(MarkOf(messageID), steerWord) }

// MarkOf is what an id has after the time.
func MarkOf(id string) string {
	_, rest, _ := strings.Cut(id, "_")
	return rest[min(idDigits, len(rest)):]
}

// hashed are so many characters made from a text.
func hashed(text string, length int) string {
	sum := sha256.Sum256([]byte("opencode/" + text))
	n, radix, digit := new(big.Int).SetBytes(sum[:]), big.NewInt(int64(len(base62))), new(big.Int)
	mark := make([]byte, length)
	for i := range mark {
		n.DivMod(n, radix, digit)
		mark[i] = base62[digit.Int64()]
	}
	return string(mark)
}

// IsMessageOf reports whether a message is the prompt of a run.
func IsMessageOf(messageID, runID string) bool {
	return runID != "" && strings.HasSuffix(messageID, RunMark(runID))
}
