package resource

import "github.com/overwinter-dev/overwinter/internal/session"

// QueueJSON has the numbers of a session's prompts that are unfinished or need a person, and
// whether the queue is held.
type QueueJSON struct {
	session.QueueCounts
	HoldJSON
}

// HoldJSON is the hold of a queue.
type HoldJSON struct {
	Held       bool   `json:"held"`
	HeldSince  *Time  `json:"heldSince,omitempty"`
	HeldReason string `json:"heldReason,omitempty"`
}

// Hold converts h.
func Hold(h session.QueueHold) HoldJSON {
	return HoldJSON{Held: h.Held(), HeldSince: OptionalTime(h.Since), HeldReason: h.Reason}
}
