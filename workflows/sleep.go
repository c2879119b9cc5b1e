package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/problem"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// sleep keeps a session hibernated until a prompt or a call wakes it.
func (l *life) sleep(ctx workflow.Context) error {
	l.wants.ForgetSandbox()
	switch {
	case l.parked != nil && !l.wants.Wake:
		return l.sleepParked(ctx)
	case l.queue.Len() > 0 && l.parked == nil:
		return l.transit(ctx, session.EventWake, session.ReasonPrompt, nil)
	case l.wants.Wake || l.wants.Revert != "" && l.parked == nil:
		reason := session.ReasonRequested
		if l.reason == session.ReasonLifetime || l.reason == session.ReasonRestart {
			reason = l.reason
		}
		return l.transit(ctx, session.EventWake, reason, nil)
	}
	return l.rest(ctx, "hibernate until the next prompt")
}

// wakes reports whether a hibernated session is about to wake.
func (l *life) wakes() bool {
	return l.wants.Wake || l.parked == nil && (l.queue.Len() > 0 || l.wants.Revert != "")
}

// rest waits for a signal. After a day without one the workflow completes, because an open workflow
// costs storage and pins old code. The row stays, and the next signal starts the workflow again.
func (l *life) rest(ctx workflow.Context, doing string) error {
	since := l.lastActivity
	if now := workflow.Now(ctx); since.IsZero() || since.After(now) {
		since = now
	}
	unloadAt := since.Add(unloadAfter)
	if l.closesAsleep {
		unloadAt = since // workers of the pinned build keep running until this workflow completes
	}
	if workflow.Now(ctx).Before(unloadAt) {
		if l.timer.why != l.why(doing, unloadAt) && l.explains(ctx) {
			l.timer.stop() // the summary of the timer describes the ended sandbox and would be visible for a day
		}
		l.wait(ctx, doing, unloadAt)
		return nil
	}
	if err := l.record(ctx, "unload the session", control.CloseSession, activities.SessionRef{SessionID: l.id}, nil); err != nil {
		return err
	}
	l.drain(ctx)
	if l.queue.Len() == 0 && l.wants == (contract.Wants{}) && !l.signalled {
		l.timer.stop()
		l.closed = true
		return nil
	}
	l.lastActivity = workflow.Now(ctx)
	return l.load(ctx) // a signal arrived while the session was being unloaded
}

// restore makes a sandbox from the newest bundle.
func (l *life) restore(ctx workflow.Context) error {
	if err := l.pauseAfterLosses(ctx); err != nil || l.wants.Stop {
		return err
	}
	return l.provision(ctx, problem.RestoringDelayed, "restore the sandbox", control.RestoreSandbox)
}

// waitForHelp keeps a session in error until a person recovers or stops it, or until the cause of
// the error may have gone away. Accepted prompts wait.
func (l *life) waitForHelp(ctx workflow.Context) error {
	l.wants.ForgetSandbox()
	l.wants.Wake, l.wants.Revert = false, ""
	if l.wants.Recover {
		err := l.transit(ctx, session.EventRecover, session.ReasonRequested, nil)
		l.wants.Recover = err != nil
		if err == nil {
			l.trouble = trouble{}
		}
		return err
	}
	if l.errorVersion(ctx) != workflow.DefaultVersion {
		return l.stepInError(ctx)
	}
	l.wait(ctx, "wait for recover or stop", time.Time{})
	return nil
}
