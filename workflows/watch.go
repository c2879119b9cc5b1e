package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/deadline"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// abortGrace is how long an interrupted turn may take to end by itself. The runner kills the
// agent's processes well before that.
const abortGrace = 30 * time.Second

// believesAttempts is the change since which the workflow trusts a cancelled attempt that reports
// that it had not delivered the prompt.
const believesAttempts = "believes-attempts"

// turnWatch controls a turn's activity while it runs.
type turnWatch struct {
	*life
	run       *session.Processing // the newest run that the workflow knows
	turn      workflow.Future
	cancel    workflow.CancelFunc    // ends the attempt at the turn
	cancelled func() bool            // reports whether the attempt was cancelled
	interrupt func() workflow.Future // interrupts the run

	doing        string
	answered     urgency
	interrupting workflow.Future // the abort in progress; nil for none
	cancelAt     time.Time       // the time at which an interrupted run is cancelled; zero until it is interrupted
	stopping     bool
}

// begunTurn is the activity of a turn.
type begunTurn struct {
	turn    workflow.Future
	ctx     workflow.Context
	cancel  workflow.CancelFunc
	attends bool // it may attend the session after the run
}

func (l *life) beginTurn(ctx workflow.Context, doing string, activity any, request activities.TurnRequest) *begunTurn {
	b := begunTurn{attends: request.Attend != nil}
	b.ctx, b.cancel = workflow.WithCancel(ctx)
	b.turn = l.begin(b.ctx, doing, turnOptionsAt(ctx), activity, request)
	return &b
}

// watch runs the turn's activity. Concurrently, it handles an abort, a stop, a forced hibernation
// and the deadline of the sandbox. It returns an error of the activity unchanged. If the activity
// attends the session after the run, run is the newest run that the workflow knows, and reclaimed
// reports that the workflow has ended the attendance while no run was in progress.
//
// ahead is the turn's activity if it was begun before the run; nil for none.
func (l *life) watch(ctx workflow.Context, run *session.Processing, ahead *aheadTurn, result *activities.TurnResult) (reclaimed bool, err error) {
	doing := fmt.Sprintf("run prompt #%d %s", run.Ordinal, run.PromptID)
	begun := ahead.begun()
	if begun == nil {
		begun = l.beginTurn(ctx, doing, turns.RunTurn, activities.TurnRequest{
			Dispatch: run.Dispatch, SessionID: l.id, RunID: run.RunID, PromptID: run.PromptID,
			Generation: l.generation, SandboxID: l.sandboxID, Look: true, Attend: l.attendance(ctx), ParkAfter: l.parkAfter,
		})
	}
	turn, cancel := begun.turn, begun.cancel
	defer cancel()
	l.attended = begun.attends
	// An abort that is still in progress when the turn ends has no effect.
	abortCtx, forgetAbort := workflow.WithCancel(ctx)
	defer forgetAbort()
	w := turnWatch{
		life: l, run: run, turn: turn, doing: doing, cancel: cancel,
		cancelled: func() bool { return begun.ctx.Err() != nil },
		interrupt: func() workflow.Future {
			return l.begin(abortCtx, "interrupt the turn", abortOptions, control.AbortRun, activities.AbortRequest{
				SessionID: l.id, Agent: l.agent, RunID: run.RunID, Part: run.Part, Generation: l.generation, SandboxID: l.sandboxID,
			})
		},
	}
	for !turn.IsReady() {
		reclaimed, err = w.follow(ctx)
		switch {
		case err != nil:
			return false, w.abandon(ctx, err)
		case reclaimed:
			cancel()
			l.leaveOver(turn)
			return true, nil
		}
		if w.expiryDue(workflow.Now(ctx)) {
			if err := w.announce(ctx, deadline.Expiry); err != nil {
				return false, w.abandon(ctx, err)
			}
			continue
		}
		now := workflow.Now(ctx)
		if err := w.act(ctx, now); err != nil {
			return false, err
		}
		w.pause(ctx, now)
	}
	return w.result(ctx, result)
}

// follow determines the activity's current run and reports whether the workflow has ended the
// attendance.
func (w *turnWatch) follow(ctx workflow.Context) (reclaimed bool, err error) {
	if !w.attended {
		return false, w.attend(ctx)
	}
	before := w.run.RunID
	reclaimed, err = w.followAttendant(ctx, w.run, &w.answered, w.cancelAt)
	if w.run.RunID != before && !w.cancelAt.IsZero() { // the run that was interrupted has ended
		w.cancelAt, w.interrupting, w.abort = time.Time{}, nil, w.pendingAbort(w.run.RunID)
	}
	return reclaimed, err
}

// act interrupts or cancels the turn if that is required now. It returns the error of a refused
// record.
func (w *turnWatch) act(ctx workflow.Context, now time.Time) error {
	at := w.interruptAt()
	outlived := !at.IsZero() && !now.Before(at)
	switch {
	case w.wants.Stop && !w.stopping:
		// The prompt gets its outcome first, so that the interrupted turn cannot set another.
		w.stopping, w.doing = true, "stop the turn"
		if err := w.cancelBeforeStop(ctx, *w.run); err != nil {
			return err
		}
		w.interrupting = w.interrupt()
		w.cancel()
	case w.cancelAt.IsZero() && !w.stopping && (w.abort || w.wants.Force || outlived):
		w.cancelAt = now.Add(abortGrace)
		w.interrupting = w.interrupt()
		w.doing = "interrupt the turn"
	case !w.cancelAt.IsZero() && !now.Before(w.cancelAt):
		w.cancel()
	case w.sandboxLost():
		// The turn decides by checking the sandbox. Its cancellation makes it check now.
		w.cancel()
	}
	return nil
}

// pause waits until the turn ends or a new decision is due.
func (w *turnWatch) pause(ctx workflow.Context, now time.Time) {
	until := earliest(w.interruptAt(), w.expiryNoticeAt())
	if !w.cancelAt.IsZero() {
		until = w.cancelAt
	}
	if w.cancelled() {
		until = time.Time{}
	}
	if at := w.answerAt(now); (w.signalled || w.resignalled) && (until.IsZero() || at.Before(until)) {
		until = at
	}
	futures := []workflow.Future{w.turn}
	if w.interrupting != nil && !w.interrupting.IsReady() {
		futures = append(futures, w.interrupting)
	}
	if newest := w.newestPrompt(); w.attended && w.cancelAt.IsZero() && newest != "" {
		w.doing = "run prompts as they come; the last was " + newest
	}
	w.wait(ctx, w.doing, until, futures...)
}

// newestPrompt returns the last prompt known to have arrived during the attendance, or "".
func (l *life) newestPrompt() string {
	if ids := l.queue.IDs(); len(ids) > 0 {
		return ids[len(ids)-1]
	}
	return l.newest
}

// result reads the result of the activity, and settles a run that was interrupted or whose sandbox
// was lost.
func (w *turnWatch) result(ctx workflow.Context, result *activities.TurnResult) (reclaimed bool, err error) {
	err = w.turn.Get(ctx, result)
	if err != nil && w.attended {
		// The result may concern a run that the workflow does not know.
		ended, takeErr := w.reclaim(ctx, w.run)
		switch {
		case takeErr != nil:
			return false, takeErr
		case ended:
			if kind := activities.TypeOf(err); kind == activities.SandboxLost || kind == activities.SandboxLimit || kind == activities.PromptNotDelivered {
				w.markSandboxLost()
			}
			return true, nil
		}
	}
	if err == nil || !w.cancelled() {
		return false, err
	}
	// The workflow cancelled the activity, so its error reveals little: if the worker is lost, the
	// cancelled activity fails with a heartbeat timeout. If the attempt's state is unknown, the row
	// decides: the prompt of a run without an attempt returns to the queue.
	kind := activities.TypeOf(err)
	undelivered := (kind == activities.NotHandedOver || kind == activities.PromptNotDelivered) &&
		workflow.GetVersion(ctx, believesAttempts, workflow.DefaultVersion, 1) != workflow.DefaultVersion
	switch {
	case w.sandboxLost() && undelivered:
		return false, w.giveBack(ctx, *w.run, session.ReasonSandboxLost)
	case w.sandboxLost():
		return false, w.lostError()
	case w.cancelAt.IsZero():
		return false, err
	case undelivered && !w.abort:
		return false, w.giveBack(ctx, *w.run, session.ReasonAborted)
	}
	_, err = w.settle(ctx, *w.run, session.OutcomeCancelled, session.ReasonAborted, !w.abort)
	return false, err
}

// awaitsAbandonedTurns is the change since which the session is read again only after a turn that
// was abandoned because of a refused record has ended. Before this change, another attempt could
// start concurrently with that turn.
const awaitsAbandonedTurns = "awaits-abandoned-turns"

// abandon ends the attempt at a turn after the store has refused a record. cause is the refusal.
// The session's row determines how the run continues.
func (w *turnWatch) abandon(ctx workflow.Context, cause error) error {
	if workflow.GetVersion(ctx, awaitsAbandonedTurns, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return cause
	}
	w.cancel()
	for !w.turn.IsReady() {
		w.wait(ctx, "end the turn's attempt", time.Time{}, w.turn)
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
