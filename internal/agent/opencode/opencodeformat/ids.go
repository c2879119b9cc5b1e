package opencodeformat

import (
	"crypto/sha256"
	"math/big"
	"strings"
)

// The agent orders messages by their ids, which begin with the time, so our ids must have the
// current time and not that of the run. The rest of an id is derived from the run's id, and
// identifies a run's message in the stream and in the transcript.

const (
	base62   = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	idRandom = 14 // characters of an id after the time
)

// RunMark returns the end of the ids of a run's message and its part.
func RunMark(runID string) string { return hashed(runID, idRandom) }

// SteerMark returns the end of the ids of a prompt added to a run.
func SteerMark(runID, promptID string) string {
	return steerWord + hashed(runID+"/steer/"+promptID, idRandom-len(steerWord))
}

// steerWord begins the marks of prompts added to runs. In the agent's own ids this part is random.
const steerWord = "steered"

// IsSteered reports whether a message is a prompt that was added to a running turn.
func IsSteered(messageID string) bool { return strings.HasPrefix(MarkOf(messageID), steerWord) }

// MarkOf returns the part of an id after the time.
func MarkOf(id string) string {
	_, rest, _ := strings.Cut(id, "_")
	return rest[min(idDigits, len(rest)):]
}

// hashed returns a hash of a text with the given number of characters.
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
