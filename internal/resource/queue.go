package resource

import "github.com/overwinter-dev/overwinter/internal/session"

// QueueJSON is how many prompts of a session are not over, or need a person, and whether the queue is held.
type QueueJSON struct {
	session.QueueCounts
	HoldJSON
}

// HoldJSON says whether a queue is held.
type HoldJSON struct {
	Held       bool   `json:"held"`
	HeldSince  *Time  `json:"heldSince,omitempty"`
	HeldReason string `json:"heldReason,omitempty"`
}

// Hold converts h.
func Hold(h session.QueueHold) HoldJSON {
	return HoldJSON{Held: h.Held(), HeldSince: OptionalTime(h.Since), HeldReason: h.Reason}
}
