package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
)

// wait blocks until one of futures is ready, a signal arrives, or the time until is reached; a zero
// until is never reached. All waits of the main routine use wait, so stop and abort are received at
// any time.
func (l *life) wait(ctx workflow.Context, doing string, until time.Time, futures ...workflow.Future) {
	l.showDoing(ctx, doing)
	sel := workflow.NewSelector(ctx)
	for _, r := range l.receivers(ctx) {
		sel.AddReceive(r.channel, func(c workflow.ReceiveChannel, _ bool) { r.receive(c) })
	}
	if l.canceled != nil {
		sel.AddReceive(l.canceled, func(workflow.ReceiveChannel, bool) { l.noteCancel() })
	}
	for _, f := range futures {
		sel.AddFuture(f, func(workflow.Future) {})
	}
	if !until.IsZero() {
		sel.AddFuture(l.timer.until(ctx, until, l.why(doing, until)), func(workflow.Future) { l.timer.clear() })
	}
	sel.Select(ctx)
	l.drain(ctx)
}

func orNow(ctx workflow.Context, t time.Time) time.Time {
	if t.IsZero() {
		return workflow.Now(ctx)
	}
	return t
}

// do runs one activity to its end while signals are received.
func (l *life) do(ctx workflow.Context, doing string, o workflow.ActivityOptions, activity, in, out any) error {
	f := l.begin(ctx, doing, o, activity, in)
	for !f.IsReady() {
		l.wait(ctx, doing, time.Time{}, f)
	}
	return l.answered(f.Get(ctx, out))
}

// answered handles the error of an activity. If another run of the workflow has opened the session,
// the row is read again before the next step, regardless of how the caller handles the error.
func (l *life) answered(err error) error {
	if activities.TypeOf(err) == activities.StaleWorkflow {
		l.superseded = true
	}
	return err
}

// record writes to Postgres. It first runs as a local activity, which saves a round trip through
// Temporal. If that fails without a final answer of the store, it falls back to an activity that is
// retried without limit. If the workflow task is lost after the write, the next task repeats it,
// possibly with different arguments; BeginRun then reports the existing owner.
func (l *life) record(ctx workflow.Context, doing string, activity, in, out any) error {
	if workflow.GetVersion(ctx, recordsInTask, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return l.do(ctx, doing, recordOptions, activity, in, out)
	}
	o := inTaskOptions
	o.Summary = doing
	f := workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, o), activity, in)
	for !f.IsReady() {
		l.wait(ctx, doing, time.Time{}, f)
	}
	if err := l.answered(f.Get(ctx, out)); err == nil || activities.IsFinal(err) {
		return err
	}
	return l.do(ctx, doing, recordOptions, activity, in, out)
}

// doUnlessStopped is do for work that a stop makes pointless. The activity is cancelled as soon as
// a stop is requested.
func (l *life) doUnlessStopped(ctx workflow.Context, doing string, o workflow.ActivityOptions, activity, in, out any) error {
	ctx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	f := l.begin(ctx, doing, o, activity, in)
	for !f.IsReady() {
		if l.wants.Stop {
			cancel()
		}
		l.wait(ctx, doing, time.Time{}, f)
	}
	return l.answered(f.Get(ctx, out))
}

func (l *life) begin(ctx workflow.Context, doing string, o workflow.ActivityOptions, activity, in any) workflow.Future {
	o.Summary = doing
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, o), activity, in)
}

// pendingTimer holds the only pending timer of a session. If the deadline moves later, the timer
// stays: it fires, and the waiting code checks again. Only an earlier deadline replaces the timer.
type pendingTimer struct {
	future workflow.Future
	at     time.Time
	why    string
	cancel workflow.CancelFunc
}

func (t *pendingTimer) until(ctx workflow.Context, at time.Time, why string) workflow.Future {
	if t.future != nil && !t.future.IsReady() && !t.at.After(at) {
		return t.future
	}
	t.stop()
	ctx, cancel := workflow.WithCancel(ctx)
	wait := max(at.Sub(workflow.Now(ctx)), time.Millisecond)
	t.at, t.why, t.cancel = at, why, cancel
	t.future = workflow.NewTimerWithOptions(ctx, wait, workflow.TimerOptions{
		Summary: why + " (" + at.UTC().Format(time.RFC3339) + ")", // Temporal's UI truncates the end
	})
	return t.future
}

func (t *pendingTimer) clear() { *t = pendingTimer{} }

func (t *pendingTimer) stop() {
	if t.cancel != nil {
		t.cancel()
	}
	t.clear()
}
