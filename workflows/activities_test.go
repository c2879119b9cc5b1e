package workflows_test

import (
	"context"
	"slices"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/overwinter-dev/overwinter/activities"
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
	ended    bool
	complete func(result any, err error)
}

func (w *world) finish(o *operation, result any, err error) {
	i := slices.Index(w.operations, o)
	if o.ended || i < 0 {
		return
	}
	w.operations = slices.Delete(w.operations, i, i+1)
	o.ended = true
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
		if o.ended {
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

func (f *fakes) TellProblem(ctx context.Context, in activities.Problem) error {
	_, err := take(ctx, f, "TellProblem", func(w *world) (nothing, error) {
		w.say("reported: %s: %s", in.Code, in.Message)
		return nothing{}, nil
	})
	return err
}

func (f *fakes) AnnounceDeadline(ctx context.Context, in activities.DeadlineRequest) (activities.Announced, error) {
	return take(ctx, f, "AnnounceDeadline", func(w *world) (activities.Announced, error) { return w.announce(in.Kind), nil })
}

func (f *fakes) Reconcile(ctx context.Context) (activities.Reconciled, error) {
	return take(ctx, f, "Reconcile", func(w *world) (activities.Reconciled, error) {
		return activities.Reconciled{Listed: len(w.alive())}, nil
	})
}
