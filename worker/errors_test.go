package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// refusing refuses to list sandboxes with a final error.
type refusing struct {
	activities.Store
	calls atomic.Int64
}

func (r *refusing) SandboxesOpen(context.Context, string) ([]session.SandboxRow, error) {
	r.calls.Add(1)
	return nil, failure.Errorf(failure.IllegalState, "the session has moved on")
}

// TestFinalErrorIsNotRepeatedByEngine uses TerminateSandbox, which joins its errors and is
// otherwise retried without limit.
func TestFinalErrorIsNotRepeatedByEngine(t *testing.T) {
	t.Parallel()
	c, i := dial(t), setupInstallation(t)
	config, store := i.worker(c), &refusing{Store: i.DB}
	config.Control, config.Turns = activities.New(activities.Config{Store: store})
	start(t, config)

	queue := t.Name()
	caller := sdkworker.New(c, queue, sdkworker.Options{})
	caller.RegisterWorkflowWithOptions(func(ctx workflow.Context) (string, error) {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue: contract.QueuesOf(i.id).Control, StartToCloseTimeout: time.Minute,
			RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond, MaximumAttempts: 3},
		})
		err := workflow.ExecuteActivity(ctx, "TerminateSandbox", activities.SandboxRef{SessionID: "ses_1"}).Get(ctx, nil)
		return activities.TypeOf(err), nil
	}, workflow.RegisterOptions{Name: "terminate"})
	require.NoError(t, caller.Start())
	t.Cleanup(caller.Stop)

	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, "terminate")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	var kind string
	require.NoError(t, run.Get(ctx, &kind))
	require.Equal(t, activities.Fenced, kind)
	require.EqualValues(t, 1, store.calls.Load())
}
