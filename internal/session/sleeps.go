package session

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/deadline"
)

// CheckpointAt returns the time after which the end of a turn saves a bundle; zero while the
// session is not running, before its first bundle, or if its policy is not a duration.
func (s Session) CheckpointAt() time.Time {
	d := s.Saves.Policy.Interval()
	if s.Status != Running || d <= 0 || s.Saves.Newest.IsZero() {
		return time.Time{}
	}
	return s.Saves.Newest.Add(d)
}

// SleepsAt returns when the session hibernates if it stays idle; zero while it is not idle, or has
// no sandbox.
func (s Session) SleepsAt() time.Time {
	if s.Status != Running || s.Queue.Queued > 0 && !s.Queue.Hold.Held() || s.Queue.Processing > 0 {
		return time.Time{}
	}
	return s.LastActivity.Add(s.IdleTimeout)
}

// ExpiresAt returns when the session leaves its sandbox because of the provider's limit; zero
// without a sandbox, or if the sandbox does not expire.
func (s Session) ExpiresAt() time.Time {
	if s.Status != Running || s.Sandbox == nil || s.Sandbox.Deadline.IsZero() {
		return time.Time{}
	}
	return s.Sandbox.Deadline.Add(-deadline.MoveMargin(s.Sandbox.Since, s.Sandbox.Deadline))
}
