package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/deadline"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// serve takes one step of a running session: it continues a run, starts the next prompt, starts
// hibernation, or waits.
func (l *life) serve(ctx workflow.Context) error {
	l.wants.Wake = false
	now := workflow.Now(ctx)
	switch {
	case l.processing != nil:
		run := *l.processing
		l.processing = nil
		return l.runTurn(ctx, run)
	case l.sandboxLost():
		err := l.transit(ctx, session.EventHibernate, session.ReasonLost, nil)
		if err == nil {
			l.losses.another(workflow.Now(ctx))
		}
		return err
	case l.wants.Hibernate:
		reason := session.ReasonRequested
		switch {
		case l.wants.Drop:
			reason = session.ReasonDropped
		case l.wants.Restart:
			reason, l.wants.Wake = session.ReasonRestart, true
		case l.pendingOf(session.CommandHibernate).Reason == session.ReasonShutdown:
			reason = session.ReasonShutdown
		}
		return l.leave(ctx, reason)
	case l.wants.Revert != "" && l.parked == nil:
		return l.revert(ctx)
	case l.wants.Sync:
		l.wants.Sync = false
		return l.checkpoint(ctx)
	case l.expired(now):
		// The session does not end; it moves to the next generation.
		l.wants.Wake = true
		return l.transit(ctx, session.EventHibernate, session.ReasonLifetime, nil)
	case l.parked != nil:
		return l.servePark(ctx, now)
	case l.queue.Len() > 0:
		return l.next(ctx)
	case l.expiryDue(now):
		return l.announce(ctx, deadline.Expiry)
	case l.sleepDue(now):
		return l.announce(ctx, deadline.Sleep)
	case !now.Before(l.idleAt()) && !l.rechecked && l.readsWaiting(ctx):
		// A signal of a prompt, a command or a longer timeout may have been lost.
		l.rechecked = true
		return l.readWaiting(ctx)
	case !now.Before(l.idleAt()):
		return l.transit(ctx, session.EventHibernate, session.ReasonIdle, nil)
	}
	until := earliest(l.idleAt(), l.moveAt(), l.sleepNoticeAt(), l.expiryNoticeAt())
	l.rechecked = false
	l.wait(ctx, fmt.Sprintf("idle; hibernates after %s", l.idleTimeout), until)
	return nil
}

// leave starts the requested hibernation. If the step is refused, the request remains unless a
// later command has replaced it.
func (l *life) leave(ctx workflow.Context, reason string) error {
	wanted := l.wants
	l.wants.ForgetSandbox()
	err := l.transit(ctx, session.EventHibernate, reason, nil)
	if err != nil && !l.wants.Hibernate && (!l.wants.Wake || wanted.Wake) {
		stop := l.wants.Stop
		l.wants = wanted
		l.wants.Stop = l.wants.Stop || stop
	}
	return err
}

// next claims the first prompt of the queue and runs it. It skips a prompt that was withdrawn or
// has ended.
func (l *life) next(ctx workflow.Context) error {
	p, _ := l.queue.Pop()
	current := session.Processing{PromptID: p.ID, Ordinal: p.Ordinal, Generation: l.generation}
	encoded := workflow.SideEffect(ctx, func(workflow.Context) any { return session.NewID(session.RunPrefix) })
	if err := encoded.Get(&current.RunID); err != nil {
		return err
	}
	claim := activities.ClaimRequest{SessionID: l.id, PromptID: p.ID, RunID: current.RunID, Generation: l.generation, Allotted: true}
	var verdict run.Verdict
	l.turn = &current // an abort that arrives during the claim applies to it
	err := l.record(ctx, "claim the prompt", control.BeginRun, claim, &verdict)
	l.turn = nil
	if err != nil {
		return err
	}
	switch {
	case verdict.Granted:
		l.promptSignalled = false // the claim has answered the signal
		current.OnUnknown, current.Dispatch = verdict.OnUnknown, verdict.Dispatch
		if verdict.RunID != "" {
			current.RunID = verdict.RunID
			l.abort = l.abort || l.pendingAbort(current.RunID)
		}
		return l.runTurn(ctx, current)
	case verdict.Held:
		l.queue.Requeue(p)
		l.forgetPrompts()
		return nil
	case verdict.Earlier != nil:
		// The signal of this prompt was lost or has not arrived yet, or the prompt was promoted.
		l.queue.Requeue(p)
		l.queue.First(*verdict.Earlier)
		return nil
	case verdict.HeldBy != "" && !verdict.Status.Final():
		// A run that the workflow does not know has this prompt or another one. Postgres returns
		// that run, which is executed first.
		l.queue.Requeue(p)
		return l.load(ctx)
	}
	l.abort = false
	return nil
}

// idleAt returns the time at which a session without prompts hibernates.
func (l *life) idleAt() time.Time { return l.lastActivity.Add(l.idleTimeout) }

// moveAt returns the time at which a session leaves its sandbox before the provider ends it; zero
// if the sandbox has no deadline.
func (l *life) moveAt() time.Time {
	if l.deadline.IsZero() {
		return time.Time{}
	}
	return l.deadline.Add(-l.margin)
}

// interruptAt returns the time at which a running turn is aborted for the move.
func (l *life) interruptAt() time.Time {
	if l.deadline.IsZero() {
		return time.Time{}
	}
	return l.deadline.Add(-l.margin / 2)
}

// plan sets the deadline of the sandbox and how long before it the session moves: long enough to
// end a turn and to save a bundle, but at most half of a short lifetime.
func (l *life) plan(since, end time.Time) {
	l.deadline = end
	l.margin = deadline.MoveMargin(since, end)
}

func (l *life) expired(now time.Time) bool {
	return !l.deadline.IsZero() && !now.Before(l.moveAt())
}
