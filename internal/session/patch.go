package session

import (
	"encoding/json"
	"time"
)

// Patch changes the fields that are not nil.
type Patch struct {
	Title       *string
	Metadata    json.RawMessage
	IdleTimeout *time.Duration
	Options     *Options
	Profile     *string // ID@VERSION
	// Workspace replaces the current one; a zero value means none.
	Workspace *Workspace
}

// Idempotency is a client's key for a create, with a digest of the body. A repeated request finds
// the object that the first one created; a key with another body is refused.
type Idempotency struct {
	Key    string
	Digest string
	// Refusal is the error for a request that is not a repetition; nil if it may be executed.
	Refusal error
}
