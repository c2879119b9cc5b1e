package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/problem"
)

// pausesAfterLosses is the change since which a session whose consecutive sandboxes end soon after
// they were ready is restored after pauses. Before this change, the next sandbox was created at
// once, without limit.
const pausesAfterLosses = "pauses-after-losses"

// steadyAfter is how long a session must have been running for the loss of its sandbox not to count
// as a consecutive loss.
const steadyAfter = 2 * time.Minute

// losses counts consecutive sandboxes that ended soon after they were ready, before a turn
// completed in them. Such losses never lead to error, because their cause may be transient and no
// request was refused.
type losses struct {
	times    int
	since    time.Time // the first loss
	up       time.Time // the time at which the session became running
	paused   int       // the number of losses that were followed by a pause
	reported time.Time
}

// another counts the loss of the session's current sandbox.
func (s *losses) another(now time.Time) {
	if s.times == 0 || now.Sub(s.up) >= steadyAfter {
		*s = losses{since: now}
	}
	s.times++
}

// endedTurn resets the count.
func (s *losses) endedTurn() { *s = losses{up: s.up} }

// pauseAfterLosses waits before the sandbox that follows at least two consecutive losses: 2s, 4s
// and so on up to maxPause. An event reports it at most once a minute. A stop ends the pause.
func (l *life) pauseAfterLosses(ctx workflow.Context) error {
	n := l.losses.times
	if n < 2 || l.losses.paused == n ||
		workflow.GetVersion(ctx, pausesAfterLosses, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return nil
	}
	l.losses.paused = n
	cause := fmt.Sprintf("%d sandboxes in a row have ended before a turn did, since %s", n, l.losses.since.UTC().Format(time.RFC3339))
	if now := workflow.Now(ctx); l.losses.reported.IsZero() || now.Sub(l.losses.reported) >= reportEvery {
		l.losses.reported = now
		problem := activities.Problem{
			SessionID: l.id, Code: problem.RestoringDelayed, Message: "restore the sandbox: " + cause + "; the next one follows after a pause",
		}
		if err := l.record(ctx, "report the delay", control.TellProblem, problem, nil); err != nil {
			return err
		}
	}
	until := workflow.Now(ctx).Add(l.backoff(n - 1))
	for workflow.Now(ctx).Before(until) && !l.wants.Stop {
		l.wait(ctx, "pause before the sandbox is restored: "+cause, until)
	}
	return nil
}
