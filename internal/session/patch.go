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
}

// ListFilter chooses sessions, newest first. Zero fields choose all.
type ListFilter struct {
	Status State
	Agent  string
	Query  string // found in the title or the id, whatever the case
	Limit  int
	Cursor string // as returned with the page before
}

// Idempotency is a client's key for a create, with a digest of the body, so that
// a resend finds what the first call made and a mix-up is told.
type Idempotency struct {
	Key    string
	Digest string
}
