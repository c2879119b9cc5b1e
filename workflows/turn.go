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

// believesAttempts is the change since which an attempt that was cancelled is believed that it had not handed
// the prompt over.
const believesAttempts = "believes-attempts"

// requeuesWithSettle is the change since which a run with a lost outcome is settled and its prompt queued again in one
// record, and one that was to be aborted is not queued again.
const requeuesWithSettle = "requeues-with-settle"

// runTurn executes a run to its end, even if another workflow run began it.
func (l *life) runTurn(ctx workflow.Context, run session.Processing) error {
	l.turn, l.looks = &run, 0
	var result activities.TurnResult
	takenBack := false // what waits has been read since the last run ended
	defer func() {
		l.turn, l.abort, l.moved, l.attended, l.doubted = nil, false, !takenBack, false, false
		l.takeWaiting(result.Waiting)
	}()
	if run.Generation != l.generation {
		// Its sandbox is gone, and with it the only witness.
		return l.settleUnknown(ctx, run, session.ReasonSandboxLost)
	}
	var err error
	takenBack, err = l.watch(ctx, &run, &result)
	if takenBack || err == nil && l.endAttendance(result) {
		l.losses.endedTurn()
		return nil
	}
	l.lastActivity = workflow.Now(ctx)
	switch {
	case err == nil:
		l.losses.endedTurn()
		return nil
	case l.wants.Stop:
		return nil // terminate settles it with the rest
	}
	switch activities.TypeOf(err) {
	case activities.PromptNotDelivered:
		l.loseSandbox()
		return l.giveBack(ctx, run, session.ReasonSandboxLost)
	case activities.SandboxLost:
		l.loseSandbox()
		return l.settleUnknown(ctx, run, session.ReasonSandboxLost)
	case activities.SandboxLimit:
		l.loseSandbox()
		_, err := l.settle(ctx, run, session.OutcomeFailed, activities.ReasonOf(err), false)
		return err
	case activities.DeliveryUnknown:
		return l.settleUnknown(ctx, run, activities.ReasonOf(err))
	case activities.StaleWorkflow:
		return err // the turn may be under way for another run of this workflow
	case activities.Fenced:
		if workflow.GetVersion(ctx, rereadsFencedRuns, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
			return nil
		}
		return err // the row says whether the run is over; if not, it is dispatched again
	case activities.Refused:
		_, err := l.settle(ctx, run, session.OutcomeFailed, activities.ReasonOf(err), false)
		return err
	}
	return l.settleUnknown(ctx, run, activities.ReasonOf(err))
}

// giveBack returns the prompt of a run that the agent never got to its place in the queue.
func (l *life) giveBack(ctx workflow.Context, run session.Processing, reason string) error {
	ref := activities.SettleRequest{RunID: run.RunID, Reason: reason}
	if err := l.record(ctx, "put the prompt back", control.ReturnRun, ref, nil); err != nil {
		return err
	}
	l.queue.Requeue(session.QueuedPrompt{ID: run.PromptID, Ordinal: run.Ordinal})
	return nil
}

// watch runs the turn's activity and, concurrently, whatever an abort, a stop, a forced hibernation
// or the end of the sandbox's life require. An error of the activity is returned unchanged. The activity may attend the
// session after the run: run is then the newest that the workflow knows of, and takenBack says that the workflow has ended
// the attendance while no run was in progress.
func (l *life) watch(ctx workflow.Context, run *session.Processing, result *activities.TurnResult) (takenBack bool, err error) {
	turnCtx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	request := activities.TurnRequest{
		Dispatch: run.Dispatch, SessionID: l.id, RunID: run.RunID, PromptID: run.PromptID,
		Generation: l.generation, SandboxID: l.sandboxID, Look: true, Attend: l.attendance(ctx),
	}
	l.attended = request.Attend != nil
	var answered urgency
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
		var err error
		switch before := run.RunID; {
		case !l.attended:
			err = l.attend(ctx)
		default:
			takenBack, err = l.followAttendant(ctx, run, &answered, giveUp)
			if run.RunID != before && !giveUp.IsZero() { // the run that was interrupted has ended
				giveUp, interrupting, l.abort = time.Time{}, nil, l.pendingAbort(run.RunID)
			}
		}
		switch {
		case err != nil:
			return false, l.abandon(ctx, turn, cancel, err)
		case takenBack:
			cancel()
			l.leftover = turn
			return true, nil
		}
		now := workflow.Now(ctx)
		interrupt := l.interruptAt()
		outlived := !interrupt.IsZero() && !now.Before(interrupt)
		switch {
		case l.wants.Stop && !stopping:
			// The prompt's outcome first, so that the interrupted turn cannot give it another.
			stopping, doing = true, "stop the turn"
			if err := l.cancelBeforeStop(ctx, *run); err != nil {
				return false, err
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
		if at := l.answerAt(now); (l.signalled || l.doubted) && (until.IsZero() || at.Before(until)) {
			until = at
		}
		futures := []workflow.Future{turn}
		if interrupting != nil && !interrupting.IsReady() {
			futures = append(futures, interrupting)
		}
		if ids := l.queue.IDs(); l.attended && giveUp.IsZero() && len(ids) > 0 {
			doing = "run prompts as they come; the last was " + ids[len(ids)-1]
		}
		l.wait(ctx, doing, until, futures...)
	}
	err = turn.Get(ctx, result)
	if err != nil && l.attended {
		// It may be about a run that the workflow does not know of.
		over, takeErr := l.takeBack(ctx, run)
		switch {
		case takeErr != nil:
			return false, takeErr
		case over:
			if kind := activities.TypeOf(err); kind == activities.SandboxLost || kind == activities.SandboxLimit || kind == activities.PromptNotDelivered {
				l.loseSandbox()
			}
			return true, nil
		}
	}
	if err == nil || turnCtx.Err() == nil {
		return false, err
	}
	// It was cancelled here. The way it ended then says little: if a worker is gone, the cancelled
	// activity runs into its heartbeat timeout. If the attempt's state is unknown, the row decides:
	// a run that no attempt has attached to is returned to the queue.
	kind := activities.TypeOf(err)
	undelivered := (kind == activities.NotHandedOver || kind == activities.PromptNotDelivered) &&
		workflow.GetVersion(ctx, believesAttempts, workflow.DefaultVersion, 1) != workflow.DefaultVersion
	switch {
	case l.sandboxLost() && undelivered:
		return false, l.giveBack(ctx, *run, session.ReasonSandboxLost)
	case l.sandboxLost():
		return false, l.lostError()
	case giveUp.IsZero():
		return false, err
	case undelivered && !l.abort:
		return false, l.giveBack(ctx, *run, session.ReasonAborted)
	}
	_, err = l.settle(ctx, *run, session.OutcomeCancelled, session.ReasonAborted, !l.abort)
	return false, err
}

// awaitsAbandonedTurns is the change since which a turn that is abandoned for a refused record has
// ended before the session is read again. Before it, another attempt could begin alongside it.
const awaitsAbandonedTurns = "awaits-abandoned-turns"

// abandon ends the attempt at a turn after the store has refused a record; cause is the refusal:
// the session's row decides what happens to the run.
func (l *life) abandon(ctx workflow.Context, turn workflow.Future, cancel workflow.CancelFunc, cause error) error {
	if workflow.GetVersion(ctx, awaitsAbandonedTurns, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return cause
	}
	cancel()
	for !turn.IsReady() {
		l.wait(ctx, "end the turn's attempt", time.Time{}, turn)
	}
	return cause
}

// cancelBeforeStop ends the run, and in workflows of an earlier version every prompt, before its turn is interrupted
// for a stop.
func (l *life) cancelBeforeStop(ctx workflow.Context, run session.Processing) error {
	if l.releasesFirst(ctx) {
		l.cancelRun(ctx, run)
		return nil
	}
	cancelled := activities.PromptsRequest{SessionID: l.id, Reason: session.ReasonSessionTerminated}
	return l.record(ctx, "cancel the prompts", control.CancelPrompts, cancelled, nil)
}

// settleUnknown gives a run whose outcome was lost the outcome unknown, and its
// prompt what its policy says: hold leaves it to a person, fail ends it as
// failed, retry puts it back in its place. A run that no attempt ever had is no loss: its prompt is
// queued again whatever the policy.
func (l *life) settleUnknown(ctx workflow.Context, run session.Processing, reason string) error {
	outcome := session.OutcomeUnknown
	if run.OnUnknown == session.Fail {
		outcome = session.OutcomeFailed
	}
	if workflow.GetVersion(ctx, requeuesWithSettle, workflow.DefaultVersion, 1) != workflow.DefaultVersion {
		request := activities.SettleRequest{
			RunID: run.RunID, Outcome: outcome, Reason: reason, ReturnUntouched: true, Requeue: run.OnUnknown == session.Retry,
		}
		if l.abort { // it has ended, however far it came, and must not run again
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
		return nil // it had ended by itself
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
