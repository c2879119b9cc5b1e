package workflows_test

import (
	"context"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func (f *fakes) BeginRun(ctx context.Context, in activities.ClaimRequest) (run.Verdict, error) {
	return take(ctx, f, "BeginRun", func(w *world) (run.Verdict, error) {
		if in.Generation != w.generation {
			return run.Verdict{}, final(activities.Fenced, "generation %d is not the newest, which is %d", in.Generation, w.generation)
		}
		p := w.prompt(in.PromptID)
		v := run.Verdict{Status: p.status, OnUnknown: p.policy}
		holder := w.runs[p.runID]
		if p.status == session.PromptQueued {
			holder = w.openRun()
		}
		switch {
		case holder != nil && holder.id == in.RunID && p.status == session.PromptProcessing:
			v.Granted, v.Dispatch = true, holder.dispatch
		case holder != nil:
			v.HeldBy, v.Generation = holder.id, holder.generation
		case p.status == session.PromptQueued && !w.state.Final() && w.state != session.Running:
			return v, final(activities.Fenced, "the session is %s, not running", w.state)
		case p.status == session.PromptQueued && slices.ContainsFunc(w.pendingCommands(), func(c session.Command) bool { return c.Kind.BeforePrompts() }):
			return v, final(activities.Fenced, "a pending command comes first")
		case p.status == session.PromptQueued && !w.state.Final() && w.held:
			w.signalled, w.loaded = false, true
			v.Held = true
		case p.status == session.PromptQueued && !w.state.Final() && w.firstQueued() != p:
			first := w.firstQueued()
			v.Earlier = &session.QueuedPrompt{ID: first.ID, Ordinal: first.Ordinal, Rank: first.Rank}
		case p.status == session.PromptQueued && !w.state.Final():
			w.attendant = nil
			w.claim(p, in.RunID, in.Generation)
			v.Granted, v.Dispatch, v.Status = true, 1, p.status
		}
		return v, nil
	})
}

// RunTurn delivers the prompt unless an earlier attempt has done so, and ends when the agent ends,
// is interrupted, or loses its sandbox. It waits while no worker has room.
func (f *fakes) RunTurn(ctx context.Context, in activities.TurnRequest) (activities.TurnResult, error) {
	w := f.w
	w.mu.Lock()
	if w.canceling["RunTurn"] {
		w.mu.Unlock()
		return activities.TurnResult{}, temporal.NewCanceledError()
	}
	if w.busy {
		w.say("turn of %s waits for a worker", in.PromptID)
		o := w.operate("RunTurn")
		o.waiting, o.engine = &in, activity.GetInfo(ctx).WorkflowExecution.RunID
		return await[activities.TurnResult](ctx, f, o)
	}
	if run := w.runs[in.RunID]; w.reset && in.Dispatch <= run.held && activity.GetInfo(ctx).Attempt == 1 && run.outcome == "" {
		w.mu.Unlock()
		return activities.TurnResult{}, final(activities.Fenced, "run %s is held by an attempt of dispatch %d", in.RunID, run.held)
	}
	result, err := w.attach("RunTurn", in)
	if err != nil || result != nil {
		w.mu.Unlock()
		if result == nil {
			result = new(activities.TurnResult)
		}
		return *result, err
	}
	o := w.operate("RunTurn")
	o.run, o.look, o.turn, o.engine = w.runs[in.RunID], in.Look, in, activity.GetInfo(ctx).WorkflowExecution.RunID
	w.endTurnAt(o, w.ask(o))
	return await[activities.TurnResult](ctx, f, o)
}

// RunTurnWhenClaimed waits for the run of its claim, and is RunTurn from then on.
func (f *fakes) RunTurnWhenClaimed(ctx context.Context, in activities.TurnRequest) (activities.TurnResult, error) {
	const name = "RunTurnWhenClaimed"
	w := f.w
	w.mu.Lock()
	if err := w.begin(name); err != nil {
		w.mu.Unlock()
		return activities.TurnResult{}, err
	}
	o := w.operate(name)
	o.waiting, o.engine = &in, activity.GetInfo(ctx).WorkflowExecution.RunID
	if run := w.runs[in.ClaimID]; run != nil && !w.busy {
		w.clock.after(claimTakes, w.locked(func() { w.take(o) }))
	}
	return await[activities.TurnResult](ctx, f, o)
}

// claimAlong claims a prompt at the end of a restore. It returns nil if the prompt may not be claimed.
func (w *world) claimAlong(c run.Proposal, generation int64) *run.Verdict {
	if w.runs[c.ID] == nil {
		p := w.prompt(c.PromptID)
		commanded := slices.ContainsFunc(w.pendingCommands(), func(c session.Command) bool { return c.Kind.BeforePrompts() })
		if p.status != session.PromptQueued || w.openRun() != nil || commanded || w.held || w.firstQueued() != p {
			w.say("the restore does not claim %s", c.PromptID)
			return nil
		}
		w.claim(p, c.ID, generation)
		w.say("the restore claims %s", p.ID)
	}
	claimed := w.runs[c.ID]
	for _, o := range w.operations {
		if o.waiting != nil && o.waiting.ClaimID == c.ID && !w.busy {
			w.clock.after(claimTakes, w.locked(func() { w.take(o) }))
		}
	}
	p := w.prompt(claimed.promptID)
	return &run.Verdict{Granted: true, RunID: claimed.id, Dispatch: claimed.dispatch, Status: p.status, OnUnknown: p.policy}
}

// loseClaim loses the answer to a restore's last commit, if a fault is injected: the workflow does not
// learn of the claim (fenced), of the transition (refused) or of both (passing).
func (w *world) loseClaim(answer *activities.SandboxReady) {
	const name = "RestoreClaim"
	faults := w.faults[name]
	if len(faults) == 0 || answer.Claimed == nil {
		return
	}
	w.faults[name] = faults[1:]
	w.say("the restore does not report its claim: %s", activities.ReasonOf(faults[0]))
	if activities.TypeOf(faults[0]) != activities.Refused {
		answer.Claimed = nil
	}
	if activities.TypeOf(faults[0]) != activities.Fenced {
		answer.Recorded = time.Time{}
	}
}

// refuseAfterRecord refuses a restore that has recorded its transition, if a fault is injected: another
// attempt has recorded it, and this one finds out too late to report that attempt's sandbox.
func (w *world) refuseAfterRecord(recorded time.Time) error {
	const name = "RestoreAnswer"
	faults := w.faults[name]
	if len(faults) == 0 || recorded.IsZero() {
		return nil
	}
	w.faults[name] = faults[1:]
	w.say("another attempt at the restore is refused: %s", activities.ReasonOf(faults[0]))
	return faults[0]
}

func (w *world) claim(p *promptRow, runID string, generation int64) {
	if w.held {
		w.violate("%s starts while the queue is held", p.ID)
	}
	w.signalled, w.loaded = false, true
	p.status, p.runID = session.PromptProcessing, runID
	w.runs[runID] = &runRow{id: runID, promptID: p.ID, generation: generation, dispatch: 1}
	w.touch()
}

// attach starts an attempt, unless the attempt ends at once with a result or an error.
func (w *world) attach(activity string, in activities.TurnRequest) (*activities.TurnResult, error) {
	run, p := w.runs[in.RunID], w.prompt(in.PromptID)
	run.attached, run.held = true, in.Dispatch
	if err := w.begin(activity); err != nil {
		return nil, err
	}
	if in.Dispatch != run.dispatch && in.ClaimID == "" && w.inTask != "lost" {
		w.violate("dispatch %d of %s, which was allotted %d", in.Dispatch, p.ID, run.dispatch)
	}
	s := w.sandbox(in.Generation)
	switch {
	case run.outcome != "":
		return &activities.TurnResult{Outcome: run.outcome}, nil
	case run.parked:
		return &activities.TurnResult{Parked: &session.Processing{PromptID: p.ID, RunID: run.id, Generation: run.generation, Part: run.part, Parked: true}}, nil
	case s == nil || s.id != in.SandboxID:
		w.violate("a turn in sandbox %q of generation %d, which is not there", in.SandboxID, in.Generation)
		return nil, final(activities.Refused, "no such sandbox")
	case !s.alive && !run.delivered:
		w.say("turn of %s finds no sandbox", p.ID)
		return nil, final(activities.PromptNotDelivered, "the sandbox has ended")
	case !s.alive:
		return nil, final(activities.SandboxLost, "the sandbox has ended")
	case run.delivered:
		w.say("turn of %s continues in generation %d", p.ID, in.Generation)
	default:
		w.deliver(run, p)
	}
	return nil, nil
}

// free assigns a worker to every waiting turn.
func (w *world) free() {
	w.busy = false
	for _, o := range slices.Clone(w.operations) {
		w.take(o)
	}
}

// take lets a waiting turn begin, unless the run of its claim does not exist yet.
func (w *world) take(o *operation) {
	if o.ended || o.waiting == nil {
		return
	}
	in := *o.waiting
	if in.ClaimID != "" {
		run := w.runs[in.ClaimID]
		if run == nil {
			return
		}
		in.RunID, in.PromptID, in.Generation, in.SandboxID = run.id, run.promptID, run.generation, w.sandbox(run.generation).id
		if run.held >= in.Dispatch && run.outcome == "" {
			w.finish(o, nil, final(activities.Fenced, "run %s is held by an attempt of dispatch %d", run.id, run.held))
			return
		}
	}
	o.waiting = nil
	result, err := w.attach(o.activity, in)
	switch {
	case err != nil:
		w.finish(o, nil, err)
	case result != nil:
		w.finish(o, *result, nil)
	default:
		o.run, o.look, o.turn = w.runs[in.RunID], in.Look, in
		w.endTurnAt(o, w.ask(o))
	}
}

func (w *world) deliver(run *runRow, p *promptRow) {
	run.delivered, run.endsAt = true, w.clock.now().Add(max(p.takes, recordTakes))
	p.deliveries++
	w.say("turn of %s in generation %d", p.ID, run.generation)
	if p.deliveries > 1 && p.policy != session.Retry {
		w.violate("%s was delivered %d times", p.ID, p.deliveries)
	}
}

// endTurnAt ends a turn at the time its agent ends, unless the sandbox has ended by then.
func (w *world) endTurnAt(o *operation, at time.Time) {
	run := o.run
	w.clock.after(max(at.Sub(w.clock.now()), time.Millisecond), w.locked(func() {
		s := w.sandbox(o.run.generation)
		if o.ended || !slices.Contains(w.operations, o) || !s.alive || o.frozen || o.run != run {
			return
		}
		outcome, reason := w.prompt(o.run.promptID).outcome, ""
		switch {
		case o.run.aborted:
			outcome, reason = session.OutcomeCancelled, session.ReasonAborted
		case outcome == session.OutcomeFailed:
			reason = session.ReasonAgentCrashed
		}
		ends := o.run.outcome == "" && !w.aborting(o.run.id)
		w.endRun(o.run, outcome, reason)
		if ends && w.attendable(o) {
			w.attendant = o
			w.signalled = false
			w.rest(o)
			return
		}
		result := activities.TurnResult{Outcome: o.run.outcome, Attended: o.attended}
		if o.turn.Attend != nil && !w.earlierWorkers {
			result.EndedAt = w.clock.now()
		}
		if o.look && !w.earlierWorkers {
			waiting := w.look()
			result.Waiting = &waiting
		}
		if w.answersLate == 0 {
			w.finish(o, result, nil)
			return
		}
		w.clock.after(w.answersLate, w.locked(func() { w.finish(o, result, nil) }))
	}))
}

func (f *fakes) AbortRun(ctx context.Context, in activities.AbortRequest) error {
	_, err := take(ctx, f, "AbortRun", func(w *world) (nothing, error) {
		run := w.runs[in.RunID]
		p := w.prompt(run.promptID)
		if in.Part != run.part {
			w.violate("part %d of the turn of %s is interrupted, which is in part %d", in.Part, p.ID, run.part)
		}
		w.say("the turn of %s is interrupted", p.ID)
		if p.stubborn || !run.delivered {
			return nothing{}, nil
		}
		run.aborted, run.endsAt = true, w.clock.now().Add(abortTakes)
		for _, o := range w.operations {
			if o.run == run {
				w.endTurnAt(o, run.endsAt)
			}
		}
		return nothing{}, nil
	})
	return err
}

func (f *fakes) SettleRun(ctx context.Context, in activities.SettleRequest) (activities.Settled, error) {
	return take(ctx, f, "SettleRun", func(w *world) (activities.Settled, error) {
		run := w.runs[in.RunID]
		if in.ReturnUntouched && !run.attached {
			if run.outcome == "" {
				run.outcome = session.OutcomeCancelled
				w.queue(w.prompt(run.promptID), in.Reason)
			}
			return activities.Settled{Returned: w.prompt(run.promptID).status == session.PromptQueued}, nil
		}
		if run.outcome == "" && in.Outcome == session.OutcomeUnknown && w.aborting(run.id) {
			in.Outcome, in.Reason, in.Requeue = session.OutcomeCancelled, session.ReasonAborted, false
		}
		if run.outcome == "" && in.Requeue && !w.state.Final() {
			run.outcome = in.Outcome
			w.queue(w.prompt(run.promptID), "")
		}
		w.endRun(run, in.Outcome, in.Reason)
		return activities.Settled{Outcome: run.outcome, Returned: in.Requeue && w.prompt(run.promptID).status == session.PromptQueued}, nil
	})
}

func (f *fakes) ContinueRun(ctx context.Context, in activities.ContinueRequest) (activities.Continuation, error) {
	return take(ctx, f, "ContinueRun", func(w *world) (activities.Continuation, error) { return w.continueRun(in) })
}

func (f *fakes) ReturnRun(ctx context.Context, in activities.SettleRequest) error {
	_, err := take(ctx, f, "ReturnRun", func(w *world) (nothing, error) {
		run := w.runs[in.RunID]
		if run.outcome != "" {
			return nothing{}, nil
		}
		if run.delivered {
			return nothing{}, final(activities.Fenced, "run %s has reached the agent", in.RunID)
		}
		run.outcome = session.OutcomeCancelled
		w.queue(w.prompt(run.promptID), in.Reason)
		return nothing{}, nil
	})
	return err
}

func (f *fakes) RequeuePrompt(ctx context.Context, in activities.PromptRef) error {
	_, err := take(ctx, f, "RequeuePrompt", func(w *world) (nothing, error) {
		if p := w.prompt(in.PromptID); p.status == session.PromptUnknown {
			w.queue(p, "")
		}
		return nothing{}, nil
	})
	return err
}

func (w *world) queue(p *promptRow, reason string) {
	p.status, p.runID, p.reason = session.PromptQueued, "", reason
	w.say("%s is queued again%s", p.ID, because(reason))
}

func (f *fakes) CancelPrompts(ctx context.Context, in activities.PromptsRequest) error {
	_, err := take(ctx, f, "CancelPrompts", func(w *world) (nothing, error) {
		w.cancelAll(in.Reason)
		return nothing{}, nil
	})
	return err
}
