package session

import "time"

// MaxHoldReasonBytes bounds the reason of a hold.
const MaxHoldReasonBytes = 1000

// QueueHold is the hold of a session's queue, during which no prompt starts, and none wakes the
// session. The zero value is a queue that is not held.
type QueueHold struct {
	Since  time.Time // zero: the queue is not held
	Reason string    // reason of the hold; may be empty
}

// Held reports whether the queue is held.
func (h QueueHold) Held() bool { return !h.Since.IsZero() }
