package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// abortPatience is how long an interrupted turn may take to end by itself: the
// runner kills the agent's processes well before.
const abortPatience = 30 * time.Second

// rereadsFencedRuns is the change since which a run whose attempt was fenced off is read again.
const rereadsFencedRuns = "rereads-fenced-runs"

// carry carries a run to its end, whoever began it.
func (l *life) carry(ctx workflow.Context, run session.Processing) error {
	l.turn = &run
	defer func() { l.turn, l.abort = nil, false }()
	if run.Generation != l.generation {
		// Its sandbox is gone, and with it the only witness.
		return l.settleUnknown(ctx, run, session.ReasonSandboxLost)
	}
	err := l.watch(ctx, run)
	l.lastActivity = workflow.Now(ctx)
	switch {
	case err == nil:
		return nil
	case l.wants.Stop:
		return nil // terminate settles it with the rest
	}
	switch activities.TypeOf(err) {
	case activities.PromptNotDelivered:
		l.loseSandbox()
		ref := activities.SettleRequest{RunID: run.RunID, Reason: session.ReasonSandboxLost}
		if err := l.record(ctx, "put the prompt back", control.ReturnRun, ref, nil); err != nil {
			return err
		}
		l.queue.Requeue(session.QueuedPrompt{ID: run.PromptID, Ordinal: run.Ordinal})
		return nil
	case activities.SandboxLost:
		l.loseSandbox()
		return l.settleUnknown(ctx, run, session.ReasonSandboxLost)
	case activities.DeliveryUnknown:
		return l.settleUnknown(ctx, run, activities.ReasonOf(err))
	case activities.Fenced:
		if workflow.GetVersion(ctx, rereadsFencedRuns, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
			return nil
		}
		return err // the row says whether the run is over; if not, it is dispatched again
	case activities.Refused:
		return l.settle(ctx, run, session.OutcomeFailed, activities.ReasonOf(err))
	}
	return l.settleUnknown(ctx, run, activities.ReasonOf(err))
}

// watch runs the turn's activity and, beside it, whatever abort, stop, a forced
// hibernation or the end of the sandbox's life ask for. An error of the activity
// is returned as it is.
func (l *life) watch(ctx workflow.Context, run session.Processing) error {
	turnCtx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	request := activities.TurnRequest{
		Dispatch: run.Dispatch, SessionID: l.id, RunID: run.RunID, PromptID: run.PromptID,
		Generation: l.generation, SandboxID: l.sandboxID,
	}
	doing := fmt.Sprintf("run prompt %s", run.PromptID)
	turn := l.begin(turnCtx, doing, turnOptionsAt(ctx), turns.RunTurn, request)
	// An abort that is still on its way when the turn ends has nothing to do any more.
	abortCtx, forgetAbort := workflow.WithCancel(ctx)
	defer forgetAbort()
	abort := func() workflow.Future {
		return l.begin(abortCtx, "interrupt the turn", abortOptions, control.AbortRun, activities.AbortRequest{
			SessionID: l.id, Agent: l.agent, RunID: run.RunID, Generation: l.generation, SandboxID: l.sandboxID,
		})
	}

	var interrupting workflow.Future // the abort under way; nil while none is
	var giveUp time.Time             // zero until the turn was interrupted
	stopping := false
	for !turn.IsReady() {
		now := workflow.Now(ctx)
		interrupt := l.interruptAt()
		outlived := !interrupt.IsZero() && !now.Before(interrupt)
		switch {
		case l.wants.Stop && !stopping:
			// The prompt's outcome first, so that the interrupted turn cannot give it another.
			stopping, doing = true, "stop the turn"
			cancelled := activities.PromptsRequest{SessionID: l.id, Reason: session.ReasonSessionTerminated}
			if err := l.record(ctx, "cancel the prompts", control.CancelPrompts, cancelled, nil); err != nil {
				return err
			}
			interrupting = abort()
			cancel()
		case giveUp.IsZero() && !stopping && (l.abort || l.wants.Force || outlived):
			giveUp = now.Add(abortPatience)
			interrupting = abort()
			doing = "interrupt the turn"
		case !giveUp.IsZero() && !now.Before(giveUp):
			cancel()
		case l.sandboxLost():
			// The turn's own look at the sandbox decides; cancelling it makes it look now.
			cancel()
		}
		until := interrupt
		if !giveUp.IsZero() {
			until = giveUp
		}
		if turnCtx.Err() != nil {
			until = time.Time{}
		}
		futures := []workflow.Future{turn}
		if interrupting != nil && !interrupting.IsReady() {
			futures = append(futures, interrupting)
		}
		l.wait(ctx, doing, until, futures...)
	}
	err := turn.Get(ctx, nil)
	if err == nil || turnCtx.Err() == nil {
		return err
	}
	// It was cancelled here. What it ended with then says little: a worker that is
	// gone lets a cancelled activity run into its heartbeat timeout.
	switch {
	case l.sandboxLost():
		return l.lostError()
	case !giveUp.IsZero():
		return l.settle(ctx, run, session.OutcomeCancelled, session.ReasonAborted)
	}
	return err
}

// settleUnknown gives a run whose outcome was lost the outcome unknown, and its
// prompt what its policy says: hold leaves it to a person, fail ends it as
// failed, retry puts it back in its place.
func (l *life) settleUnknown(ctx workflow.Context, run session.Processing, reason string) error {
	if run.OnUnknown == session.Fail {
		return l.settle(ctx, run, session.OutcomeFailed, reason)
	}
	if err := l.settle(ctx, run, session.OutcomeUnknown, reason); err != nil {
		return err
	}
	if run.OnUnknown != session.Retry {
		return nil
	}
	ref := activities.PromptRef{SessionID: l.id, PromptID: run.PromptID}
	if err := l.record(ctx, "queue the prompt again", control.RequeuePrompt, ref, nil); err != nil {
		return err
	}
	l.queue.Requeue(session.QueuedPrompt{ID: run.PromptID, Ordinal: run.Ordinal})
	return nil
}

func (l *life) settle(ctx workflow.Context, run session.Processing, outcome session.Outcome, reason string) error {
	request := activities.SettleRequest{RunID: run.RunID, Outcome: outcome, Reason: reason}
	return l.record(ctx, "settle the run", control.SettleRun, request, nil)
}
