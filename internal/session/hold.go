package session

import "time"

// MaxHoldReasonBytes bounds the reason of a hold.
const MaxHoldReasonBytes = 1000

// QueueHold says whether the queue of a session is held: then no prompt starts, and none wakes the session. The zero value is a queue
// that is not held.
type QueueHold struct {
	Since  time.Time // zero: the queue is not held
	Reason string    // that was given; may be empty
}

// Held reports whether the queue is held.
func (h QueueHold) Held() bool { return !h.Since.IsZero() }
