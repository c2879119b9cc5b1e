// Package deadline says which deadlines a session has while it is awake, and how long before each of them an event
// announces it.
package deadline

import "time"

// Kind says what happens to a session at a deadline.
type Kind string

// The kinds of deadline.
const (
	Sleep  Kind = "sleep"  // it hibernates, because it has been idle
	Expiry Kind = "expiry" // it moves to a new sandbox, because the provider ends this one soon
	// Checkpoint: it saves a bundle now, before its next turn, because the newest one has the age of its policy.
	Checkpoint Kind = "checkpoint"
)

// The longest notice that is given of a deadline. Of a short idle timeout, or the short life of a sandbox, it is a quarter.
const (
	maxSleepNotice  = time.Minute
	maxExpiryNotice = 5 * time.Minute
)

// MaxMoveMargin is how long before the provider ends its sandbox a session leaves it: long enough to end a turn, and to save
// a bundle.
const MaxMoveMargin = 20 * time.Minute

// SleepNotice is how long before a session hibernates an event announces that.
func SleepNotice(idleTimeout time.Duration) time.Duration { return min(maxSleepNotice, idleTimeout/4) }

// ExpiryNotice is how long before a session moves an event announces that; margin is that of the move.
func ExpiryNotice(margin time.Duration) time.Duration { return min(maxExpiryNotice, margin/4) }

// MoveMargin is how long before the end of its sandbox's life a session moves; half of a short life.
func MoveMargin(since, deadline time.Time) time.Duration {
	return min(MaxMoveMargin, max(0, deadline.Sub(since)/2))
}

// Announced is what became of the announcement of a deadline.
type Announced struct {
	At          time.Time // of the deadline; zero if there is none now
	IdleTimeout time.Duration
	Done        bool // it has its event; otherwise it is too early
}
