package activities_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// by turns a call of an activity into a request of a workflow run.
func by[I, O any](run string, act func(context.Context, I) (O, error)) func(context.Context, I) (O, error) {
	return func(ctx context.Context, in I) (O, error) { return act(session.WithWorkflowRun(ctx, run), in) }
}

// TestStaleWorkflowRunTouchesNoSandbox uses a run created by a reset, which repeats earlier
// requests. Until it has read the session, it does not end the session's sandbox, stop the agent in
// it, or create another one.
func TestStaleWorkflowRunTouchesNoSandbox(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	_, err := b.db.SessionOpen(b.ctx, b.id, "w1")
	require.NoError(t, err)
	ready, err := do(b, attempt{}, by("w1", b.control.CreateSandbox), activities.SandboxRequest{SessionID: b.id, Generation: 1})
	require.NoError(t, err)
	b.transit(t, session.EventReady)
	ref := activities.SandboxRef{SessionID: b.id, Generation: ready.Generation, SandboxID: ready.SandboxID, Reason: "hibernated"}

	// The run that has opened the session may make each of these requests.
	requests := map[string]func(run string) error{
		"save": func(run string) error {
			_, err := do(b, attempt{}, by(run, b.control.SaveBundle), b.saveRequest(ready))
			return err
		},
		"drop": func(run string) error {
			_, err := do(b, attempt{}, by(run, b.control.DropSandbox), b.saveRequest(ready))
			return err
		},
		"terminate": func(run string) error {
			_, err := do(b, attempt{}, by(run, plain(b.control.TerminateSandbox)), ref)
			return err
		},
	}
	refused := map[string]func(run string) error{
		"create": func(run string) error {
			_, err := do(b, attempt{}, by(run, b.control.CreateSandbox), activities.SandboxRequest{SessionID: b.id, Generation: 2})
			return err
		},
		"restore": func(run string) error {
			_, err := do(b, attempt{}, by(run, b.control.RestoreSandbox), activities.SandboxRequest{SessionID: b.id, Generation: 2})
			return err
		},
		"revert": func(run string) error {
			_, err := do(b, attempt{}, by(run, plain(b.control.RevertSession)), activities.RevertRequest{
				SessionID: b.id, Generation: ready.Generation, SandboxID: ready.SandboxID, PromptID: "p1",
			})
			return err
		},
	}
	for _, requests := range []map[string]func(string) error{requests, refused} {
		for name, request := range requests {
			err := request("w2")
			require.Error(t, err, name)
			require.Equal(t, activities.StaleWorkflow, activities.TypeOf(err), "%s: %v", name, err)
			require.True(t, activities.IsFinal(err), name)
		}
	}
	require.True(t, b.running(t, ready.SandboxID))
	_, err = b.db.BundleHead(b.ctx, b.id)
	require.Equal(t, failure.NoBundle, failure.CodeOf(err))

	_, err = b.db.SessionOpen(b.ctx, b.id, "w2")
	require.NoError(t, err)
	for _, name := range []string{"save", "terminate"} {
		require.NoError(t, requests[name]("w2"), name)
	}
	require.False(t, b.running(t, ready.SandboxID))
}

// TestActivitiesPassWorkflowRunID covers all activities except turns, which have their own order.
func TestActivitiesPassWorkflowRunID(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		workflow, activity string
		says               bool
	}{
		{contract.WorkflowName, "RecordTransition", true},
		{contract.WorkflowName, "RunTurn", false},
		{contract.WorkflowName, "RunTurnWhenClaimed", false},
		{"Reconcile", "Reconcile", false},
	} {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestWorkflowEnvironment()
		env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{&activities.Interceptor{}}})
		var runs []string
		env.RegisterActivityWithOptions(func(ctx context.Context) error {
			runs = append(runs, session.WorkflowRunOf(ctx))
			return nil
		}, activity.RegisterOptions{Name: c.activity})
		run := ""
		env.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
			run = workflow.GetInfo(ctx).WorkflowExecution.RunID
			o := workflow.ActivityOptions{StartToCloseTimeout: time.Minute}
			if err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, o), c.activity).Get(ctx, nil); err != nil {
				return err
			}
			l := workflow.LocalActivityOptions{StartToCloseTimeout: time.Minute}
			return workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, l), c.activity).Get(ctx, nil)
		}, workflow.RegisterOptions{Name: c.workflow})
		env.ExecuteWorkflow(c.workflow)
		require.NoError(t, env.GetWorkflowError())
		want := []string{"", ""}
		if c.says {
			require.NotEmpty(t, run)
			want = []string{run, run}
		}
		require.Equal(t, want, runs, "%s of %s", c.activity, c.workflow)
	}
}
