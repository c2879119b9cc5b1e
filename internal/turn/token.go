package turn

import (
	"crypto/rand"
	"encoding/hex"
)

// NewToken returns a token that identifies one attempt at a run.
func NewToken() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
