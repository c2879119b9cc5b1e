package workflows_test

import (
	"context"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// fakes implements the activities under their real names, on the rows of a world. Each activity
// takes some time on the engine's clock. Its effects and its result appear at its end, except for
// effects that the real activity makes visible earlier.
type fakes struct {
	w *world
	// answer executes an operation as the engine would.
	answer func(ctx context.Context, w *world, o *operation) (any, error)
}

// operation is a running activity.
type operation struct {
	activity string
	run      *runRow // of a turn
	look     bool    // the turn's request also asks for the pending commands and prompts
	turn     activities.TurnRequest
	attended *activities.Attended    // the prompts that the turn claimed itself; nil for none
	rests    int                     // how often the turn has waited for a prompt
	frozen   bool                    // its worker is frozen
	engine   string                  // the workflow run that requested it
	waiting  *activities.TurnRequest // the request of a turn that waits for a worker with room
	over     bool
	complete func(result any, err error)
}

func (w *world) finish(o *operation, result any, err error) {
	i := slices.Index(w.operations, o)
	if o.over || i < 0 {
		return
	}
	w.operations = slices.Delete(w.operations, i, i+1)
	o.over = true
	o.complete(result, err)
}

// cancel cancels the activity of that name. The activity notices at its next heartbeat.
func (w *world) cancel(activity string) {
	w.canceling[activity] = true
	for _, o := range w.operations {
		if o.activity == activity {
			w.clock.after(cancelTakes, w.locked(func() { w.finish(o, nil, temporal.NewCanceledError()) }))
		}
	}
}

// begin records a call of an activity and returns its injected error.
func (w *world) begin(activity string) error {
	if w.canceling[activity] {
		return temporal.NewCanceledError()
	}
	if faults := w.faults[activity]; len(faults) > 0 {
		w.faults[activity] = faults[1:]
		w.say("%s fails: %s", activity, activities.ReasonOf(faults[0]))
		return faults[0]
	}
	return nil
}

// take runs an activity whose effects happen at its end.
func take[T any](ctx context.Context, f *fakes, name string, do func(*world) (T, error)) (T, error) {
	return during(ctx, f, name, func(w *world) error { return w.begin(name) }, do)
}

// during is take for an activity that has an effect at its start.
func during[T any](ctx context.Context, f *fakes, name string, first func(*world) error, do func(*world) (T, error)) (none T, err error) {
	w := f.w
	w.mu.Lock()
	inTask := runsInTask(ctx)
	if inTask && w.inTask == "slow" {
		err = errTooSlow
	} else if err = w.checkWorkflow(ctx, name); err == nil {
		err = first(w)
	}
	if err != nil {
		w.mu.Unlock()
		return none, err
	}
	if inTask {
		defer w.mu.Unlock()
		result, err := do(w)
		if err == nil && w.inTask == "lost" {
			return none, errTooSlow
		}
		return result, err
	}
	o := w.operate(name)
	takes := w.takes[name]
	if takes == 0 {
		takes = recordTakes
	}
	// A started activity keeps running on its worker, even if the workflow is discarded.
	w.alarm(takes, func() {
		if o.over {
			return
		}
		if err := w.checkWorkflow(ctx, name); err != nil {
			w.finish(o, nil, err)
			return
		}
		result, err := do(w)
		w.finish(o, result, err)
	})
	return await[T](ctx, f, o)
}

// checkWorkflow refuses requests of a workflow run after another run has opened the session.
// Postgres does this for records, and activities do it before they change anything at the provider.
func (w *world) checkWorkflow(ctx context.Context, name string) error {
	if !activity.IsActivity(ctx) || name == "AbortRun" || name == "FlushSandbox" {
		return nil
	}
	asks := activity.GetInfo(ctx).WorkflowExecution.RunID
	switch {
	case name == "OpenSession":
		w.workflowRun = asks
	case w.workflowRun != "" && w.workflowRun != asks:
		w.say("%s is refused: another run has opened the session", name)
		return final(activities.StaleWorkflow, "run %s has opened the session since", w.workflowRun)
	}
	return nil
}

func (w *world) operate(activity string) *operation {
	o := &operation{activity: activity}
	w.operations = append(w.operations, o)
	return o
}

// await unlocks the world and waits for the operation, or lets the engine wait for it.
func await[T any](ctx context.Context, f *fakes, o *operation) (none T, err error) {
	result, err := f.answer(ctx, f.w, o) // unlocks
	if err != nil {
		return none, err
	}
	return result.(T), nil
}

// errTooSlow is the error of a record that took longer than the workflow task allows.
var errTooSlow = temporal.NewTimeoutError(enums.TIMEOUT_TYPE_START_TO_CLOSE, nil)

type nothing = struct{}

func (f *fakes) OpenSession(ctx context.Context, _ activities.SessionRef) (activities.OpenedSession, error) {
	return take(ctx, f, "OpenSession", func(w *world) (activities.OpenedSession, error) {
		w.loaded, w.signalled, w.attendant = true, false, nil
		o := activities.OpenedSession{
			Attend: w.attends, Announce: w.announces, ParkAfter: w.parkAfter, Held: w.held,
			KeepsRoom: w.keepsRoom, ClosesAsleep: w.versioned,
			Commands: w.waiting(),
			Status:   w.state, StatusReason: w.reason, ErrorCause: w.errorCause, Agent: "demo", Lazy: w.lazy, IdleTimeout: w.idleTimeout,
			LastActivity: w.lastActivity, Generation: w.generation, TransitionNo: w.transitionNo, Queue: w.taskQueue,
		}
		for _, p := range w.prompts {
			switch p.status {
			case session.PromptQueued:
				if !w.held {
					o.Waiting = append(o.Waiting, p.QueuedPrompt)
				}
			case session.PromptProcessing:
				run := w.runs[p.runID]
				run.dispatch++
				o.Processing = &session.Processing{
					PromptID: p.ID, Ordinal: p.Ordinal, RunID: p.runID,
					Generation: run.generation, Dispatch: run.dispatch, OnUnknown: p.policy,
					Part: run.part, Parked: run.parked, Due: run.parked && run.answered,
				}
				if run.parked && !run.answered {
					o.Processing.Until = run.expires
				}
			}
		}
		if head := w.head(); head != nil {
			o.BundleID = head.id
		}
		if s := w.sandbox(w.generation); s != nil && !s.ended {
			o.SandboxID, o.Deadline = s.id, s.deadline
		}
		return o, nil
	})
}

func (f *fakes) CloseSession(ctx context.Context, _ activities.SessionRef) error {
	_, err := take(ctx, f, "CloseSession", func(w *world) (nothing, error) {
		w.loaded = false
		return nothing{}, nil
	})
	return err
}

func (f *fakes) RecordTransition(ctx context.Context, t session.Transition) error {
	_, err := take(ctx, f, "RecordTransition", func(w *world) (nothing, error) { return nothing{}, w.transit(t) })
	return err
}

func (f *fakes) CreateSandbox(ctx context.Context, in activities.SandboxRequest) (activities.SandboxReady, error) {
	return f.provision(ctx, "CreateSandbox", in)
}

func (f *fakes) RestoreSandbox(ctx context.Context, in activities.SandboxRequest) (activities.SandboxReady, error) {
	return f.provision(ctx, "RestoreSandbox", in)
}

// provision implements both CreateSandbox and RestoreSandbox. The sandbox exists at the provider
// from the start, and a cancelled activity leaves it there.
func (f *fakes) provision(ctx context.Context, activity string, in activities.SandboxRequest) (activities.SandboxReady, error) {
	var row *sandboxRow
	adopted := false
	begin := func(w *world) (err error) {
		if before := w.sandbox(in.Generation - 1); !in.Fresh && activity == "RestoreSandbox" && before != nil && before.alive && before.ready {
			row, adopted = before, true
			w.say("resume the sandbox of generation %d", row.generation)
			return nil
		}
		if err = w.startable(activity, in.Generation); err != nil {
			return err
		}
		if row, err = w.reserve(in.Generation); err != nil {
			return err
		}
		if err := w.begin(activity); err != nil {
			return err // reserved, but no sandbox was created
		}
		w.say("%s of generation %d", activity, in.Generation)
		w.boot(row)
		return nil
	}
	return during(ctx, f, activity, begin, func(w *world) (activities.SandboxReady, error) {
		if !row.alive {
			row.ended = true
			return activities.SandboxReady{}, final(activities.GenerationUnusable, "the runner does not answer")
		}
		row.ready = true
		if w.doomed > 0 {
			w.doomed--
			w.alarm(100*time.Millisecond, func() {
				w.say("sandbox of generation %d ends by itself", row.generation)
				w.kill(row)
			})
		}
		answer := activities.SandboxReady{Generation: row.generation, SandboxID: row.id, Deadline: row.deadline}
		if activity == "RestoreSandbox" && !adopted {
			answer.Receipt = &receipt.Receipt{Kind: w.receipt(), Missing: []string{}}
			if in.Fresh {
				answer.Receipt.Kind = receipt.Partial
			}
			if in.Then != nil && !w.earlierWorkers {
				t := *in.Then
				t.Generation, t.Receipt = answer.Generation, answer.Receipt
				answer.Recorded = w.recordsAlong(activity, t)
			}
		}
		return answer, nil
	})
}

func (w *world) receipt() receipt.Kind {
	head := w.head()
	switch {
	case head == nil:
		return receipt.Fresh
	case head.verified:
		return receipt.Full
	}
	return receipt.Unverified
}

func (f *fakes) SaveBundle(ctx context.Context, in activities.SaveRequest) (activities.Saved, error) {
	return take(ctx, f, "SaveBundle", func(w *world) (activities.Saved, error) {
		if in.Unsaved && !w.unsaved(&in) {
			w.say("nothing is unsaved")
			return activities.Saved{}, nil
		}
		if saved, ok := w.savedBefore(in); ok {
			return w.release(in, saved), nil
		}
		s := w.sandbox(in.Generation)
		if s == nil || !s.alive {
			w.say("SaveBundle finds the sandbox gone")
			return activities.Saved{}, final(activities.SandboxLost, "the sandbox has ended")
		}
		return w.release(in, w.commit(in, true)), nil
	})
}

// release terminates the sandboxes of a saved session if the request asks for it and
// TerminateSandbox has no injected fault.
func (w *world) release(in activities.SaveRequest, saved activities.Saved) activities.Saved {
	const activity = "TerminateSandbox"
	if in.Release == "" || w.earlierWorkers || w.takes[activity] > time.Second {
		return saved
	}
	if faults := w.faults[activity]; len(faults) > 0 {
		w.faults[activity] = faults[1:]
		w.say("SaveBundle cannot terminate the sandbox: %v", faults[0])
		return saved
	}
	for _, s := range w.sandboxes {
		w.terminate(s)
	}
	saved.Released = true
	if in.Then == nil {
		return saved
	}
	saved.Recorded = w.recordsAlong("SaveBundle", *in.Then)
	return saved
}

// recordsAlong records a transition at the end of another activity and returns its time, or the
// zero time if recording fails.
func (w *world) recordsAlong(activity string, t session.Transition) time.Time {
	const record = "RecordTransition"
	err := error(nil)
	if faults := w.faults[record]; len(faults) > 0 {
		w.faults[record], err = faults[1:], faults[0]
	}
	t.At = w.clock.now()
	if err == nil {
		err = w.transit(t)
	}
	if err != nil {
		w.say("%s cannot record the transition: %v", activity, err)
		return time.Time{}
	}
	return t.At
}

func (f *fakes) RescueBundle(ctx context.Context, in activities.SaveRequest) (activities.Saved, error) {
	return take(ctx, f, "RescueBundle", func(w *world) (activities.Saved, error) {
		if in.Unsaved && !w.unsaved(&in) {
			w.say("nothing is unsaved")
			return activities.Saved{}, nil
		}
		if saved, ok := w.savedBefore(in); ok {
			return saved, nil
		}
		// A sandbox has remains to rescue if a turn has run or a bundle was made.
		for _, run := range w.runs {
			if run.delivered {
				return w.commit(in, false), nil
			}
		}
		if w.head() != nil {
			return w.commit(in, false), nil
		}
		w.say("nothing is left to save")
		return activities.Saved{}, nil
	})
}

func (f *fakes) DropSandbox(ctx context.Context, in activities.SaveRequest) (activities.Saved, error) {
	return take(ctx, f, "DropSandbox", func(w *world) (activities.Saved, error) {
		if saved, ok := w.savedBefore(in); ok {
			return saved, nil
		}
		w.say("the transcript of generation %d is stored", in.Generation)
		return w.commit(in, false), nil
	})
}

func (f *fakes) RevertSession(ctx context.Context, in activities.RevertRequest) error {
	_, err := take(ctx, f, "RevertSession", func(w *world) (nothing, error) {
		s := w.sandbox(in.Generation)
		if s == nil || !s.alive {
			w.say("RevertSession finds the sandbox gone")
			return nothing{}, final(activities.SandboxLost, "the sandbox has ended")
		}
		asked := slices.ContainsFunc(w.operations, func(o *operation) bool { return o.activity == "RevertSession" })
		for _, r := range w.runs {
			switch {
			case r.outcome != "" || !r.delivered:
			case asked:
				w.violate("reverted while %s runs", r.promptID)
			default: // the requesting workflow was discarded, and the next one does not know of the activity
				return nothing{}, final(activities.Fenced, "a turn is in progress")
			}
		}
		w.say("reverted to before %s", in.PromptID)
		return nothing{}, nil
	})
	return err
}

// unsaved returns the newest sandbox with work that no bundle covers.
func (w *world) unsaved(in *activities.SaveRequest) bool {
	head := w.head()
	for _, s := range slices.Backward(w.sandboxes) {
		if s.worked && s.id != "" && (head == nil || s.generation > head.generation || s.generation == head.generation && head.checkpoint) {
			in.Generation, in.SandboxID = s.generation, s.id
			return true
		}
	}
	return false
}

func (w *world) savedBefore(in activities.SaveRequest) (activities.Saved, bool) {
	head := w.head()
	if head == nil || head.id != in.BundleID && (head.generation != in.Generation || head.checkpoint) {
		return activities.Saved{}, false
	}
	return activities.Saved{BundleID: head.id, Verified: head.verified}, true
}

func (w *world) commit(in activities.SaveRequest, verified bool) activities.Saved {
	w.bundles = append(w.bundles, bundleRow{
		id: in.BundleID, generation: in.Generation, verified: verified, checkpoint: in.Checkpoint,
	})
	kind := "verified"
	if !verified {
		kind = "unverified"
	}
	what := "bundle"
	if in.Checkpoint {
		what = "checkpoint"
	}
	w.say("saved a %s of generation %d, %s", what, in.Generation, kind)
	return activities.Saved{BundleID: in.BundleID, Verified: verified}
}

func (f *fakes) TerminateSandbox(ctx context.Context, in activities.SandboxRef) error {
	_, err := take(ctx, f, "TerminateSandbox", func(w *world) (nothing, error) {
		for _, s := range w.sandboxes {
			if s.alive && (in.Reason == "hibernated" || in.Reason == "in error" && s.worked) && (w.head() == nil || w.head().generation != s.generation || w.head().checkpoint) {
				w.violate("sandbox of generation %d terminated before it was saved", s.generation)
			}
			w.terminate(s)
		}
		return nothing{}, nil
	})
	return err
}

func (f *fakes) FlushSandbox(ctx context.Context, in activities.SandboxRef) error {
	_, err := take(ctx, f, "FlushSandbox", func(w *world) (nothing, error) {
		w.say("final output of generation %d", in.Generation)
		return nothing{}, nil
	})
	return err
}

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
		o.waiting = &in
		return await[activities.TurnResult](ctx, f, o)
	}
	if run := w.runs[in.RunID]; w.reset && in.Dispatch <= run.held && activity.GetInfo(ctx).Attempt == 1 && run.outcome == "" {
		w.mu.Unlock()
		return activities.TurnResult{}, final(activities.Fenced, "run %s is held by an attempt of dispatch %d", in.RunID, run.held)
	}
	over, err := w.attach(in)
	if err != nil || over != nil {
		w.mu.Unlock()
		if over == nil {
			over = new(activities.TurnResult)
		}
		return *over, err
	}
	o := w.operate("RunTurn")
	o.run, o.look, o.turn, o.engine = w.runs[in.RunID], in.Look, in, activity.GetInfo(ctx).WorkflowExecution.RunID
	w.endTurnAt(o, w.ask(o))
	return await[activities.TurnResult](ctx, f, o)
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
func (w *world) attach(in activities.TurnRequest) (*activities.TurnResult, error) {
	run, p := w.runs[in.RunID], w.prompt(in.PromptID)
	run.attached, run.held = true, in.Dispatch
	if err := w.begin("RunTurn"); err != nil {
		return nil, err
	}
	if in.Dispatch != run.dispatch && w.inTask != "lost" {
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
		if o.waiting == nil {
			continue
		}
		in := *o.waiting
		o.waiting = nil
		result, err := w.attach(in)
		switch {
		case err != nil:
			w.finish(o, nil, err)
		case result != nil:
			w.finish(o, *result, nil)
		default:
			o.run, o.look, o.turn = w.runs[in.RunID], in.Look, in
			w.endTurnAt(o, o.run.endsAt)
		}
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
		if o.over || !slices.Contains(w.operations, o) || !s.alive || o.frozen || o.run != run {
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

func (f *fakes) TellProblem(ctx context.Context, in activities.Problem) error {
	_, err := take(ctx, f, "TellProblem", func(w *world) (nothing, error) {
		w.say("reported: %s: %s", in.Code, in.Message)
		return nothing{}, nil
	})
	return err
}

func (f *fakes) ContinueRun(ctx context.Context, in activities.ContinueRequest) (activities.Continuation, error) {
	return take(ctx, f, "ContinueRun", func(w *world) (activities.Continuation, error) { return w.continueRun(in) })
}

func (f *fakes) AnnounceDeadline(ctx context.Context, in activities.DeadlineRequest) (activities.Announced, error) {
	return take(ctx, f, "AnnounceDeadline", func(w *world) (activities.Announced, error) { return w.announce(in.Kind), nil })
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

func (f *fakes) Reconcile(ctx context.Context) (activities.Reconciled, error) {
	return take(ctx, f, "Reconcile", func(w *world) (activities.Reconciled, error) {
		return activities.Reconciled{Listed: len(w.alive())}, nil
	})
}
