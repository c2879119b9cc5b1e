package session

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
	"github.com/overwinter-dev/overwinter/internal/profile"
)

// Prefixes of generated ids. An id is its prefix and a UUIDv7 as 32 lower-case hexadecimal digits,
// so ids of one kind sort by age.
const (
	SessionPrefix  = "ses_"
	PromptPrefix   = "prm_"
	RunPrefix      = "run_"
	BundlePrefix   = "bun_"
	QuestionPrefix = "que_"
	ProfilePrefix  = profile.Prefix
	CommandPrefix  = "cmd_"
)

// NewID returns a new id with the given prefix.
func NewID(prefix string) string {
	id := uuid.Must(uuid.NewV7()) // fails only without a source of randomness
	return prefix + hex.EncodeToString(id[:])
}

var (
	ownID    = lazyregexp.New(`^(ses|prm|run|bun|que|prf|cmd|whk|whd)_[0-9a-f]{32}$`)
	promptID = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)
)

// ValidID reports whether id was made by NewID with that prefix.
func ValidID(prefix, id string) bool {
	return len(id) > len(prefix) && id[:len(prefix)] == prefix && ownID.MatchString(id)
}

// ValidPromptID reports whether a client may choose id for a prompt:
// 1 to 64 of A-Z a-z 0-9 _ -.
func ValidPromptID(id string) bool { return promptID.MatchString(id) }

// DerivedID returns an id with that prefix that is a function of the parts.
func DerivedID(prefix string, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return prefix + hex.EncodeToString(sum[:16])
}

// SandboxName returns the name of a session's sandbox of one generation. It is unique among running
// sandboxes, so that a retried create finds the first sandbox.
func SandboxName(sessionID string, generation int64) string {
	return fmt.Sprintf("%s-g%d", sessionID, generation)
}
