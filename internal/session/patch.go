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
	// Workspace takes the place of the present one; a zero one stands for none.
	Workspace *Workspace
}

// Idempotency is a client's key for a create, with a digest of the body. A repeated request finds
// the object that the first one created; a key with another body is refused.
type Idempotency struct {
	Key    string
	Digest string
	// Refusal is the error of a request that is not a repeated one; nil if it may be executed.
	Refusal error
}
