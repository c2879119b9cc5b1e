package workflows_test

import (
	"context"
	"reflect"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// engine makes the SDK's test environment behave like the server where the two differ, and watches
// the timers. The environment ends a cancelled activity at once, even if the workflow waits for its
// end. With engine, as with a server, the activity is notified and ends by itself.
type engine struct {
	interceptor.WorkerInterceptorBase
	stage *stage
}

// timers counts the timers that the workflow has started.
type timers struct {
	started int
	pending workflow.Future // the newest
	ctx     workflow.Context
}

func (e *engine) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &inbound{WorkflowInboundInterceptorBase: interceptor.WorkflowInboundInterceptorBase{Next: next}, stage: e.stage}
}

type inbound struct {
	interceptor.WorkflowInboundInterceptorBase
	stage *stage
}

func (i *inbound) Init(next interceptor.WorkflowOutboundInterceptor) error {
	return i.Next.Init(&outbound{WorkflowOutboundInterceptorBase: interceptor.WorkflowOutboundInterceptorBase{Next: next}, stage: i.stage})
}

type outbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	stage *stage
}

func (o *outbound) ExecuteActivity(ctx workflow.Context, activity string, args ...any) workflow.Future {
	o.stage.commands["activity "+activity]++
	o.stage.history.add(3 + taskEvents)
	w := o.stage.world
	if !workflow.GetActivityOptions(ctx).WaitForCancellation {
		f := o.Next.ExecuteActivity(ctx, activity, args...)
		o.stage.activities = append(o.stage.activities, func() bool { return !f.IsReady() && ctx.Err() == nil })
		return f
	}
	w.mu.Lock()
	w.canceling[activity] = false
	w.mu.Unlock()
	detached, _ := workflow.NewDisconnectedContext(ctx)
	f := o.Next.ExecuteActivity(detached, activity, args...)
	o.stage.activities = append(o.stage.activities, func() bool { return !f.IsReady() })
	workflow.Go(detached, func(detached workflow.Context) {
		canceled := false
		workflow.NewSelector(detached).
			AddFuture(f, func(workflow.Future) {}).
			AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) { canceled = true }).
			Select(detached)
		if canceled && !f.IsReady() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.cancel(activity)
		}
	})
	return f
}

// ExecuteLocalActivity runs the local activity in almost no time. The environment would run it
// concurrently with the workflow, while the machine's clock advances.
//
//workflowcheck:ignore
func (o *outbound) ExecuteLocalActivity(ctx workflow.Context, activity string, args ...any) workflow.Future {
	o.stage.commands["record "+activity]++
	o.stage.history.add(1)
	method := reflect.ValueOf(&fakes{w: o.stage.world}).MethodByName(activity)
	in := []reflect.Value{reflect.ValueOf(context.WithValue(context.Background(), inTask{}, true)), reflect.ValueOf(args[0])}
	future, set := workflow.NewFuture(ctx)
	o.stage.env.RegisterDelayedCallback(func() {
		out := method.Call(in)
		err, _ := out[len(out)-1].Interface().(error)
		if len(out) == 1 || err != nil {
			set.Set(nil, recorded(err))
		} else {
			set.SetValue(out[0].Interface())
		}
	}, time.Nanosecond)
	return future
}

func (o *outbound) SideEffect(ctx workflow.Context, f func(workflow.Context) any) converter.EncodedValue {
	o.stage.commands["side effect"]++
	o.stage.history.add(1)
	return o.Next.SideEffect(ctx, f)
}

func (o *outbound) UpsertTypedSearchAttributes(ctx workflow.Context, attributes ...temporal.SearchAttributeUpdate) error {
	o.stage.commands["search attributes"]++
	o.stage.history.add(1)
	return o.Next.UpsertTypedSearchAttributes(ctx, attributes...)
}

func (o *outbound) UpsertMemo(ctx workflow.Context, memo map[string]any) error {
	o.stage.commands["memo"]++
	o.stage.history.add(1)
	if err, toDo := memo["error"], memo["toDo"]; err != nil {
		o.stage.world.say("memo: error %s; to do: %s", err, toDo)
	} else if _, cleared := memo["error"]; cleared && o.stage.inError {
		o.stage.world.say("memo: no error")
	}
	o.stage.inError = memo["error"] != nil
	return o.Next.UpsertMemo(ctx, memo)
}

// GetVersion counts, once for each run, the marker of a change and the search attribute that lists
// the change.
func (o *outbound) GetVersion(ctx workflow.Context, change string, lowest, highest workflow.Version) workflow.Version {
	if h := &o.stage.history; !h.versions[change] {
		h.versions[change] = true
		h.add(2)
	}
	return o.Next.GetVersion(ctx, change, lowest, highest)
}

// recorded returns an error as the workflow receives it, after it was written to the history and
// read back.
func recorded(err error) error {
	convert := temporal.GetDefaultFailureConverter()
	return convert.FailureToError(convert.ErrorToFailure(err))
}

// inTask is the context key that marks a local activity.
type inTask struct{}

func runsInTask(ctx context.Context) bool {
	return ctx.Value(inTask{}) != nil || activity.IsActivity(ctx) && activity.GetInfo(ctx).IsLocalActivity
}

func (o *outbound) NewTimerWithOptions(ctx workflow.Context, d time.Duration, options workflow.TimerOptions) workflow.Future {
	w, timers := o.stage.world, &o.stage.timers
	w.mu.Lock()
	defer w.mu.Unlock()
	if timers.pending != nil && !timers.pending.IsReady() && timers.ctx.Err() == nil {
		w.violate("a second timer is pending")
	}
	w.say("timer for %s", d.Round(time.Millisecond))
	timers.started++
	o.stage.commands["timer"]++
	o.stage.history.add(2 + taskEvents)
	timers.pending, timers.ctx = o.Next.NewTimerWithOptions(ctx, d, options), ctx
	return timers.pending
}
