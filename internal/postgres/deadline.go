package postgres

import (
	"context"
	"time"

	"github.com/overwinter-dev/overwinter/internal/deadline"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/resource"
)

// clockSkew is how much earlier than the database's clock Temporal's clock may find that an
// announcement is due.
const clockSkew = time.Second

// DeadlineAnnounce adds a deadline event to a session's log if the deadline is near, or has passed
// without effect yet, and returns the deadline. It is not idempotent: repeated announcements are
// allowed.
func (db *DB) DeadlineAnnounce(ctx context.Context, sessionID string, kind deadline.Kind) (a deadline.Announced, err error) {
	err = db.inSession(ctx, "announce a deadline", sessionID, func(s *sessionTx) error {
		a = deadline.Announced{}
		row, err := db.sessionGetBare(ctx, s, sessionID)
		if err != nil {
			return err
		}
		notice := deadline.SleepNotice(row.IdleTimeout)
		at := row.SleepsAt()
		if kind == deadline.Expiry {
			if at = row.ExpiresAt(); !at.IsZero() {
				notice = deadline.ExpiryNotice(row.Sandbox.Deadline.Sub(at))
			}
		}
		if at.IsZero() {
			return nil
		}
		a.At, a.IdleTimeout = at, row.IdleTimeout
		if s.now.Before(at.Add(-notice - clockSkew)) {
			return nil
		}
		a.Done = true
		return s.add(event.TypeDeadline, "", event.DeadlineData{Kind: kind, At: resource.Time(at)})
	})
	return a, err
}
