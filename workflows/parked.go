package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// park records that the turn has ended with its run parked. The open questions of the run are read
// with the session.
func (l *life) park(ctx workflow.Context, result activities.TurnResult) {
	l.endAttendance(result)
	l.losses.endedTurn()
	l.lastActivity = workflow.Now(ctx)
	l.parked = result.Parked
	l.last = endedTurn{}
}

// fresh reports whether the agent of the parked run still waits in its sandbox. The session must
// leave that sandbox before it can continue the run.
func (l *life) fresh() bool {
	return l.state == session.Running && l.parked.Generation == l.generation && !l.sandboxLost()
}

// parkedDue reports whether the session must be read because of its parked run, or the run must be
// aborted.
func (l *life) parkedDue() bool {
	unread := l.parked.Until.IsZero() && !l.parked.Due
	return l.signalled || l.promptSignalled || l.moved || unread || l.abort && !l.fresh()
}

// readParked reads a session with a parked run, including whether its questions are answered. It
// ends a parked run that has a pending abort, which needs no sandbox.
func (l *life) readParked(ctx workflow.Context) error {
	if !l.abort || l.fresh() {
		return l.load(ctx)
	}
	_, err := l.settle(ctx, *l.parked, session.OutcomeCancelled, session.ReasonAborted, false)
	if err == nil {
		l.parked, l.abort, l.moved = nil, false, true
	}
	return err
}

// parkEndReason returns the reason why a parked run can continue. It returns "" while the questions
// are open, or have not been read since the run was parked.
func (l *life) parkEndReason(now time.Time) string {
	switch p := l.parked; {
	case p.Due:
		return session.ReasonAnswer
	case !p.Until.IsZero() && !now.Before(p.Until):
		return session.ReasonQuestionExpired
	}
	return ""
}

// servePark handles the parked run of a running session. If the run was parked in this sandbox, the
// session hibernates at once. Otherwise it continues the run when that is possible, or, if a client
// has woken it, hibernates after its idle timeout. Prompts wait.
func (l *life) servePark(ctx workflow.Context, now time.Time) error {
	switch {
	case l.fresh():
		return l.transit(ctx, session.EventHibernate, session.ReasonQuestion, nil)
	case l.parkEndReason(now) != "":
		return l.continueParked(ctx)
	case !now.Before(l.idleAt()):
		return l.transit(ctx, session.EventHibernate, session.ReasonQuestion, nil)
	}
	l.wait(ctx, "wait for the answer to a question; hibernates when idle", earliest(l.idleAt(), l.moveAt(), l.parked.Until))
	return nil
}

// continueParked assigns the parked run to the session's sandbox and runs it.
func (l *life) continueParked(ctx workflow.Context) error {
	request := activities.ContinueRequest{RunID: l.parked.RunID, Generation: l.generation}
	var answer activities.Continuation
	if err := l.record(ctx, "continue the run", control.ContinueRun, request, &answer); err != nil {
		return err
	}
	switch {
	case answer.Ended:
		l.parked, l.moved = nil, true
		return nil
	case !answer.Granted: // clocks differ, or another question is still open
		l.parked.Due, l.parked.Until = false, answer.Until
		if soon := workflow.Now(ctx).Add(time.Second); answer.Until.Before(soon) {
			l.parked.Until = soon
		}
		return nil
	}
	run := *l.parked
	run.Parked, run.Due, run.Until = false, false, time.Time{}
	run.Generation, run.Dispatch, run.Part = l.generation, answer.Dispatch, answer.Part
	l.parked = nil
	return l.runTurn(ctx, run)
}

// sleepParked keeps a session asleep until the questions of its parked run are answered or have
// expired. The workflow stays open until the questions expire.
func (l *life) sleepParked(ctx workflow.Context) error {
	if reason := l.parkEndReason(workflow.Now(ctx)); reason != "" {
		return l.transit(ctx, session.EventWake, reason, nil)
	}
	l.wait(ctx, "hibernate until a question is answered", l.parked.Until)
	return nil
}
