package activities

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/turn"
)

// Turns holds the long activities, for the queue turns.
type Turns struct {
	*Config
	store   turnStore
	runs    *turn.Executor
	runners *runners
	places  *places
}

// turnStore is the part of the store that turns use.
type turnStore interface {
	attendantStore
	// RunAttach makes token the only valid one of the run and returns the run's input.
	// illegal_state if the run has ended, or another attempt that is not older than by has it. expected
	// is called like run.Claim.Expected, for the first attempt.
	RunAttach(ctx context.Context, runID, token string, by run.Dispatch, expected func(run.Start)) (run.Start, error)
	RunGet(ctx context.Context, runID string) (run.Run, error)
	// RunOfClaim returns the run that a claim was granted, and reports false if there is none yet.
	RunOfClaim(ctx context.Context, sessionID, claimID string) (run.Located, bool, error)
	// RunEnd gives run and prompt their outcome with the events turn_end, prompt and queue, and
	// counts metrics. A run that has ended keeps its outcome, which is returned either way.
	RunEnd(ctx context.Context, ending run.Ending) (run.Run, error)
	ProblemReport(ctx context.Context, sessionID, code, message string) error
}

// errHandOver ends a turn on a worker that stops. The agent continues, and the next worker attaches
// after the last committed frame.
var errHandOver = errors.New("this worker stops; another carries the turn on")

// RunTurn executes a run to its end: it attaches to the runner, delivers the prompt if the runner
// does not have it, turns every frame into events and gives the run its outcome. Its progress is
// committed, so another worker can continue at the next frame. See the package documentation for
// how each loss is reported.
func (t *Turns) RunTurn(ctx context.Context, in TurnRequest) (TurnResult, error) {
	ctx, pulse := startPulse(ctx, t.TurnStall, t.Logger.With(slog.String("session_id", in.SessionID), slog.String("run_id", in.RunID)))
	defer pulse.stop()
	place := t.places.take()
	defer place.release()
	return t.run(ctx, in, pulse, place)
}

// run executes a run, and attends the session afterwards if the request allows that.
func (t *Turns) run(ctx context.Context, in TurnRequest, pulse *pulse, place *place) (TurnResult, error) {
	token := turn.NewToken()
	by := run.Dispatch{No: in.Dispatch, Attempt: int64(activity.GetInfo(ctx).Attempt)}
	attendant := t.newAttendant(in, pulse, place)
	defer attendant.stop()
	start, err := recorded(ctx, func(recording context.Context) (run.Start, error) {
		return t.store.RunAttach(recording, in.RunID, token, by, func(start run.Start) { attendant.greet(ctx, start) })
	})
	if failure.CodeOf(err) == failure.IllegalState {
		return t.superseded(ctx, in, err)
	}
	if err != nil {
		return TurnResult{}, stored(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-activity.GetWorkerStopChannel(ctx):
			cancel(errHandOver)
		case <-ctx.Done():
		}
	}()
	if start.Quarantine {
		return t.quarantine(ctx, in, start)
	}
	for {
		result, attending, err := t.measuredTurn(ctx, in, start, token, attendant)
		if err != nil || !attending {
			return attendant.report(result), err
		}
		next, err := attendant.next(ctx, &result)
		if err != nil || next == nil {
			return attendant.report(result), err
		}
		in.RunID, in.PromptID, start, token = next.Run.ID, next.Prompt.ID, *next, next.Run.Token
	}
}

// measuredTurn is runTurn with the metrics of an attempt.
func (t *Turns) measuredTurn(ctx context.Context, in TurnRequest, start run.Start, token string, a *attendant) (TurnResult, bool, error) {
	end := t.Metrics.AttemptBegun()
	ctx, span := tracer.Start(tracedBy(ctx, start.Prompt.TraceParent), "turn", trace.WithAttributes(
		attribute.String("overwinter.session_id", in.SessionID), attribute.String("overwinter.prompt_id", start.Prompt.ID),
		attribute.String("overwinter.run_id", in.RunID), attribute.String("overwinter.agent", start.Agent),
		attribute.Int64("overwinter.attempt", start.Run.Attempt),
	))
	defer span.End()
	result, attending, err := t.runTurn(ctx, in, start, token, a)
	switch cause := context.Cause(ctx); {
	case err == nil:
		end("ended")
	case errors.Is(cause, errStalled):
		end("stalled")
	case errors.Is(cause, errHandOver):
		end("handed_over")
	case ctx.Err() != nil:
		end("cancelled")
	default:
		end("failed")
	}
	return result, attending, err
}

// runTurn executes one run to its end. It reports whether the attempt attends the session afterwards.
func (t *Turns) runTurn(ctx context.Context, in TurnRequest, start run.Start, token string, a *attendant) (result TurnResult, attending bool, err error) {
	request := t.request(in, start)
	request.Token, request.RefusedTo, request.Greeting = token, a.refusedTo, a.greeted()
	at, err := t.runs.Run(ctx, request, a.pulse)
	if a.refusedTo = nil; at != nil {
		a.refusedTo = at.RefusedTo
	}
	switch {
	case at == nil:
		return TurnResult{}, false, err
	case at.Parked:
		return TurnResult{Parked: parkedOf(start)}, false, nil
	}
	attends := ctx.Err() == nil
	if at.Last != nil { // the end of the turn is stored nowhere else
		ctx = context.WithoutCancel(ctx)
	}
	if ctx.Err() != nil {
		t.keepSegments(ctx, in, start.Run.Attempt, at)
	}
	switch {
	case errors.Is(context.Cause(ctx), errHandOver):
		return TurnResult{}, false, handedOver()
	case ctx.Err() != nil && !at.MayHaveDelivered:
		return TurnResult{}, false, temporal.NewApplicationError("cancelled before the agent got the prompt", NotHandedOver)
	case ctx.Err() != nil:
		return TurnResult{}, false, ctx.Err()
	case turn.TakenOver(err):
		result, err = t.superseded(ctx, in, err)
		return result, false, err
	case err != nil && at.End == nil:
		return TurnResult{}, false, t.turnError(ctx, in, at, err)
	case err != nil:
		t.notFlushed(ctx, in, start.Run.Attempt, err)
	}
	end := at.End
	ending := run.Ending{
		RunID: in.RunID, Token: token, Outcome: end.Outcome, Reason: end.Reason, Usage: end.Usage, Model: end.Model, Segments: at.Segments, Last: at.Last,
	}
	if in.Look {
		ending.RecheckFor = activity.GetInfo(ctx).WorkflowExecution.RunID
	}
	if err == nil && attends {
		ending.Attend = a.ready()
	}
	ended, err := t.end(ctx, ending)
	if err != nil && failure.CodeOf(err) != failure.Unavailable && len(ending.Segments) > 0 {
		// A segment may be refused, for example because it leaves a gap. That does not change the outcome.
		if !t.keepSegments(ctx, in, start.Run.Attempt, at) {
			ending.Attend = ""
		}
		ending.Segments = nil
		ended, err = t.end(ctx, ending)
	}
	if failure.CodeOf(err) == failure.IllegalState {
		result, err = t.superseded(ctx, in, err)
		return result, false, err
	}
	if failure.CodeOf(err) == failure.Invalid && at.Last != nil {
		err = failure.Errorf(failure.Unavailable, "the next attempt stores the last frames alone: %v", err)
	}
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errHandOver):
		return TurnResult{}, false, handedOver() // the next attempt ends the run, unless it has ended
	case err != nil:
		return TurnResult{}, false, stored(err)
	}
	result = resultOf(ended)
	if in.Attend != nil { // if the end reports no pending work, another attempt has ended the run
		result.EndedAt, result.Reread = ended.EndedAt, ended.Look == nil && in.Look
	}
	return result, ended.Attended, nil
}

// request returns the part of the executor's request that the activity's and the run's start determine.
func (t *Turns) request(in TurnRequest, start run.Start) turn.Request {
	return turn.Request{
		SessionID: in.SessionID, RunID: in.RunID, Generation: in.Generation, SandboxID: in.SandboxID, Start: start, ParkAfter: in.ParkAfter,
	}
}

func (t *Turns) end(ctx context.Context, ending run.Ending) (run.Run, error) {
	return recorded(ctx, func(ctx context.Context) (run.Run, error) { return t.store.RunEnd(ctx, ending) })
}

// keepSegments stores the end of a turn's transcripts if the end of the run does not, and reports
// whether it did.
func (t *Turns) keepSegments(ctx context.Context, in TurnRequest, attempt int64, at *turn.Result) bool {
	if len(at.Segments) == 0 {
		return true
	}
	_, err := recorded(context.WithoutCancel(ctx), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, t.runs.StoreSegments(ctx, in.SessionID, in.RunID, at.Segments)
	})
	if err != nil {
		t.notFlushed(ctx, in, attempt, err)
	}
	return err == nil
}

// notFlushed logs that the last lines of an ended turn's transcripts may be missing.
func (t *Turns) notFlushed(ctx context.Context, in TurnRequest, attempt int64, err error) {
	t.Logger.WarnContext(ctx, "the transcripts were not flushed at the end of a turn", slog.String("session_id", in.SessionID),
		slog.String("run_id", in.RunID), slog.Int64("attempt", attempt), slog.Any("error", err))
}

// parkedOf returns a parked run in its workflow's form. Its questions are in their rows.
func parkedOf(start run.Start) *session.Processing {
	return &session.Processing{
		PromptID: start.Prompt.ID, Ordinal: start.Prompt.Ordinal, RunID: start.Run.ID, Generation: start.Run.Generation,
		OnUnknown: start.Prompt.OnUnknown, Part: start.Run.Part, Parked: true,
	}
}

// handedOver returns the error of a turn that another worker continues.
func handedOver() error {
	return temporal.NewApplicationErrorWithOptions(errHandOver.Error(), HandOver, temporal.ApplicationErrorOptions{
		Category: temporal.ApplicationErrorCategoryBenign, // this happens with every deploy
	})
}

// recordTimeout bounds one statement of a turn on its run. It is shorter than the heartbeat's
// timeout, so that an attempt ends by itself if the store hangs.
const recordTimeout = 5 * time.Second

// recorded executes one statement of a turn on its run within recordTimeout, and sends heartbeats
// meanwhile.
func recorded[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	stop := beat(ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	return do(ctx)
}

func resultOf(r run.Run) TurnResult {
	out := TurnResult{Outcome: r.Outcome, Reason: r.Reason, Usage: r.Usage, LastFrame: r.LastFrame}
	if r.Look != nil {
		waiting := waitingOf(*r.Look)
		out.Waiting = &waiting
	}
	return out
}

// superseded reports the end of a run that has ended, since the answer of the attempt that ended it
// may have been lost; that attempt may have run other prompts since, if it was allowed to attend.
// If the run is open, the error is Fenced, and the workflow reads the row again.
func (t *Turns) superseded(ctx context.Context, in TurnRequest, cause error) (TurnResult, error) {
	run, err := t.store.RunGet(ctx, in.RunID)
	if err != nil {
		return TurnResult{}, stored(err)
	}
	if run.Parked && run.Outcome == "" { // the answer of the attempt that has parked it was lost
		p := &session.Processing{PromptID: run.PromptID, RunID: run.ID, Generation: run.Generation, Part: run.Part, Parked: true}
		return TurnResult{Parked: p}, nil
	}
	if run.Outcome != "" {
		result := resultOf(run)
		result.Reread = in.Attend != nil
		return result, nil
	}
	return TurnResult{}, final(Fenced, cause)
}

// turnError returns the error of a failed attempt for the workflow. If the sandbox still runs,
// Temporal retries, and the journal has kept everything.
func (t *Turns) turnError(ctx context.Context, in TurnRequest, at *turn.Result, err error) error {
	if err = converted(err); TypeOf(err) != "" {
		return err
	}
	err = lostOr(ctx, t.Sandbox.Open(in.SandboxID), err)
	if TypeOf(err) == SandboxLost && !at.MayHaveDelivered {
		return final(PromptNotDelivered, err)
	}
	if TypeOf(err) == SandboxLost && exceeded(err) {
		return final(SandboxLimit, errors.New(ReasonOf(err)))
	}
	return err
}
