package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/deadline"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// notices holds the announcements of deadlines. Each deadline is announced once; if it moves, it is
// announced again when it is near. An announcement costs a timer and a record. Only sessions that
// become idle, or whose sandbox nears its end, make announcements.
type notices struct {
	given  bool      // the session was opened by a worker that announces deadlines
	sleep  time.Time // the announced time of the hibernation; zero if not announced
	expiry time.Time // the announced time of the move
}

// sleepNoticeAt returns the time at which the hibernation must be announced, or the zero time if it
// was announced already or will not be.
func (l *life) sleepNoticeAt() time.Time {
	at := l.idleAt()
	if move := l.moveAt(); !l.notices.given || l.notices.sleep.Equal(at) || !move.IsZero() && move.Before(at) {
		return time.Time{}
	}
	return at.Add(-deadline.SleepNotice(l.idleTimeout))
}

// expiryNoticeAt returns the time at which the move must be announced, or the zero time if it was
// announced already or will not be.
func (l *life) expiryNoticeAt() time.Time {
	at := l.moveAt()
	if !l.notices.given || at.IsZero() || l.state != session.Running || l.notices.expiry.Equal(at) {
		return time.Time{}
	}
	return at.Add(-deadline.ExpiryNotice(l.margin))
}

func (l *life) sleepDue(now time.Time) bool {
	notice := l.sleepNoticeAt()
	return !notice.IsZero() && !now.Before(notice)
}

func (l *life) expiryDue(now time.Time) bool {
	notice := l.expiryNoticeAt()
	return !notice.IsZero() && !now.Before(notice)
}

// announce announces a deadline with the time in the session's row, which clients see.
func (l *life) announce(ctx workflow.Context, kind deadline.Kind) error {
	request := activities.DeadlineRequest{SessionID: l.id, Kind: kind}
	var answer activities.Announced
	if err := l.record(ctx, "announce the "+string(kind), control.AnnounceDeadline, request, &answer); err != nil {
		return err
	}
	switch {
	case kind == deadline.Expiry:
		if !answer.At.IsZero() {
			l.margin = l.deadline.Sub(answer.At)
		}
		l.notices.expiry = l.moveAt()
	case answer.At.IsZero(): // pending work was not read yet
		l.signalled, l.notices.sleep = true, l.idleAt()
	default:
		l.idleTimeout, l.lastActivity = answer.IdleTimeout, answer.At.Add(-answer.IdleTimeout)
		if answer.Done || l.sleepDue(workflow.Now(ctx)) { // clock skew must not lead to a loop
			l.notices.sleep = l.idleAt()
		}
	}
	return nil
}

// earliest returns the earliest non-zero time, or the zero time.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}
