package session

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/deadline"
)

// CheckpointAt is the time after which the end of a turn saves a bundle; zero while the session does not run, before its first
// bundle, or if its policy is no duration.
func (s Session) CheckpointAt() time.Time {
	d := s.Saves.Policy.Interval()
	if s.Status != Running || d <= 0 || s.Saves.Newest.IsZero() {
		return time.Time{}
	}
	return s.Saves.Newest.Add(d)
}

// SleepsAt is when the session hibernates unless something happens before; zero while something does, or while it has no
// sandbox to leave.
func (s Session) SleepsAt() time.Time {
	if s.Status != Running || s.Queue.Queued > 0 && !s.Queue.Hold.Held() || s.Queue.Processing > 0 {
		return time.Time{}
	}
	return s.LastActivity.Add(s.IdleTimeout)
}

// ExpiresAt is when the session leaves its sandbox because of the provider's limit; zero while it has none, or one without
// an end.
func (s Session) ExpiresAt() time.Time {
	if s.Status != Running || s.Sandbox == nil || s.Sandbox.Deadline.IsZero() {
		return time.Time{}
	}
	return s.Sandbox.Deadline.Add(-deadline.MoveMargin(s.Sandbox.Since, s.Sandbox.Deadline))
}
