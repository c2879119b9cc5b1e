package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// rereadsFencedRuns is the change since which a run whose attempt was fenced is read again.
const rereadsFencedRuns = "rereads-fenced-runs"

// requeuesWithSettle is the change since which a run with a lost outcome is settled and its prompt
// requeued in one record, and the prompt of a run with a pending abort is not requeued.
const requeuesWithSettle = "requeues-with-settle"

// runTurn executes a run to its end, even if another workflow run started it.
func (l *life) runTurn(ctx workflow.Context, run session.Processing) error {
	return l.runBegun(ctx, run, nil)
}

// runBegun is runTurn for a turn whose activity may have begun before the run.
func (l *life) runBegun(ctx workflow.Context, run session.Processing, ahead *aheadTurn) error {
	l.turn, l.looks, l.newest = &run, 0, ""
	var result activities.TurnResult
	reclaimed := false // the pending work was read after the last run ended
	defer func() {
		l.turn, l.abort, l.moved, l.attended, l.resignalled = nil, false, !reclaimed, false, false
		l.takeWaiting(result.Waiting)
	}()
	if run.Generation != l.generation {
		// Its sandbox has ended, and with it the journal of the run.
		return l.settleUnknown(ctx, run, session.ReasonSandboxLost)
	}
	var err error
	reclaimed, err = l.watch(ctx, &run, ahead, &result)
	l.last = endedTurn{Ordinal: run.Ordinal, Outcome: result.Outcome, Reason: result.Reason}
	if a := result.Attended; a != nil {
		l.last.Ordinal = a.Ordinal
	}
	if err == nil && !reclaimed && result.Parked != nil {
		l.park(ctx, result)
		return nil
	}
	if reclaimed || err == nil && l.endAttendance(result) {
		l.losses.endedTurn()
		return nil
	}
	l.lastActivity = workflow.Now(ctx)
	switch {
	case err == nil:
		l.losses.endedTurn()
		return nil
	case l.wants.Stop:
		return nil // terminate settles the run
	}
	switch activities.TypeOf(err) {
	case activities.PromptNotDelivered:
		l.markSandboxLost()
		return l.giveBack(ctx, run, session.ReasonSandboxLost)
	case activities.SandboxLost:
		l.markSandboxLost()
		return l.settleUnknown(ctx, run, session.ReasonSandboxLost)
	case activities.SandboxLimit:
		l.markSandboxLost()
		_, err := l.settle(ctx, run, session.OutcomeFailed, activities.ReasonOf(err), false)
		return err
	case activities.DeliveryUnknown:
		return l.settleUnknown(ctx, run, activities.ReasonOf(err))
	case activities.StaleWorkflow:
		return err // the turn may be in progress for another run of this workflow
	case activities.GaveWay:
		return l.runTurn(ctx, run)
	case activities.Fenced:
		if workflow.GetVersion(ctx, rereadsFencedRuns, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
			return nil
		}
		return err // the row has the state of the run; if the run has not ended, it is dispatched again
	case activities.Refused:
		_, err := l.settle(ctx, run, session.OutcomeFailed, activities.ReasonOf(err), false)
		return err
	}
	return l.settleUnknown(ctx, run, activities.ReasonOf(err))
}

// giveBack requeues the prompt of a run that never reached the agent, at its original position.
func (l *life) giveBack(ctx workflow.Context, run session.Processing, reason string) error {
	ref := activities.SettleRequest{RunID: run.RunID, Reason: reason}
	if err := l.record(ctx, "return the prompt to the queue", control.ReturnRun, ref, nil); err != nil {
		return err
	}
	l.queue.Requeue(session.QueuedPrompt{ID: run.PromptID, Ordinal: run.Ordinal})
	return nil
}

// settleUnknown ends a run whose outcome was lost as unknown, and applies the policy to its prompt:
// hold leaves the prompt for a person to decide, fail ends it as failed, retry requeues it at its
// original position. A run without any attempt is not a loss: its prompt is requeued regardless of
// the policy.
func (l *life) settleUnknown(ctx workflow.Context, run session.Processing, reason string) error {
	outcome := session.OutcomeUnknown
	if run.OnUnknown == session.Fail {
		outcome = session.OutcomeFailed
	}
	if workflow.GetVersion(ctx, requeuesWithSettle, workflow.DefaultVersion, 1) != workflow.DefaultVersion {
		request := activities.SettleRequest{
			RunID: run.RunID, Outcome: outcome, Reason: reason, ReturnUntouched: true, Requeue: run.OnUnknown == session.Retry,
		}
		if l.abort { // an aborted run has ended and must not run again
			request.Outcome, request.Reason = session.OutcomeCancelled, session.ReasonAborted
			request.ReturnUntouched, request.Requeue = false, false
		}
		_, err := l.settleWith(ctx, run, request)
		return err
	}
	settled, err := l.settle(ctx, run, outcome, reason, true)
	if err != nil || settled.Returned || run.OnUnknown != session.Retry {
		return err
	}
	if settled.Outcome != session.OutcomeUnknown && settled.Outcome != "" {
		return nil // the run had ended by itself
	}
	ref := activities.PromptRef{SessionID: l.id, PromptID: run.PromptID}
	if err := l.record(ctx, "queue the prompt again", control.RequeuePrompt, ref, nil); err != nil {
		return err
	}
	l.queue.Requeue(session.QueuedPrompt{ID: run.PromptID, Ordinal: run.Ordinal})
	return nil
}

func (l *life) settle(ctx workflow.Context, run session.Processing, outcome session.Outcome, reason string, returnUntouched bool) (activities.Settled, error) {
	request := activities.SettleRequest{RunID: run.RunID, Outcome: outcome, Reason: reason, ReturnUntouched: returnUntouched}
	return l.settleWith(ctx, run, request)
}

func (l *life) settleWith(ctx workflow.Context, run session.Processing, request activities.SettleRequest) (activities.Settled, error) {
	var settled activities.Settled
	err := l.record(ctx, "settle the run", control.SettleRun, request, &settled)
	if settled.Returned {
		l.queue.Requeue(session.QueuedPrompt{ID: run.PromptID, Ordinal: run.Ordinal})
	}
	return settled, err
}
