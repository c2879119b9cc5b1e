// Package deadline has the deadlines of an awake session, and the notice with which an event
// announces each of them.
package deadline

import "time"

// Kind is the effect of a deadline on a session.
type Kind string

// The kinds of deadline.
const (
	Sleep  Kind = "sleep"  // it hibernates, because it has been idle
	Expiry Kind = "expiry" // it moves to a new sandbox, because the provider ends this one soon
	// Checkpoint: it saves a bundle now, before its next turn, because the newest one has the age of its policy.
	Checkpoint Kind = "checkpoint"
)

// The longest notice of a deadline. For a short idle timeout, or a short lifetime of a sandbox, it
// is a quarter of that.
const (
	maxSleepNotice  = time.Minute
	maxExpiryNotice = 5 * time.Minute
)

// MaxMoveMargin is how long before the end of its sandbox's lifetime a session moves: long enough
// to end a turn and to save a bundle.
const MaxMoveMargin = 20 * time.Minute

// SleepNotice returns how long before a hibernation an event announces it.
func SleepNotice(idleTimeout time.Duration) time.Duration { return min(maxSleepNotice, idleTimeout/4) }

// ExpiryNotice returns how long before a move an event announces it; margin is that of the move.
func ExpiryNotice(margin time.Duration) time.Duration { return min(maxExpiryNotice, margin/4) }

// MoveMargin returns how long before the end of its sandbox's lifetime a session moves: at most
// half of the lifetime.
func MoveMargin(since, deadline time.Time) time.Duration {
	return min(MaxMoveMargin, max(0, deadline.Sub(since)/2))
}

// Announced is the state of the announcement of a deadline.
type Announced struct {
	At          time.Time // of the deadline; zero if there is none now
	IdleTimeout time.Duration
	Done        bool // it has its event; otherwise it is too early
}
