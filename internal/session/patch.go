package session

import (
	"encoding/json"
	"time"
)

// Patch changes what is not nil.
type Patch struct {
	Title       *string
	Metadata    json.RawMessage
	IdleTimeout *time.Duration
	Options     *Options
	Profile     *string // ID@VERSION
	// Workspace takes the place of the present one; a zero one stands for none.
	Workspace *Workspace
}

// Idempotency is a client's key for a create, with a digest of the body, so that a resend finds
// what the first call made, and a key with another body is refused.
type Idempotency struct {
	Key    string
	Digest string
	// Refusal is what a request fails with that is not repeated; nil if it may be carried out.
	Refusal error
}
