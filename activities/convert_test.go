package activities_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/failure"
)

// TestWrappedFinalErrorStaysFinal passes an error through the SDK's failure converter. A workflow
// whose retry policy has no limit gets the error after one attempt.
func TestWrappedFinalErrorStaysFinal(t *testing.T) {
	t.Parallel()
	refused := &failure.Error{Code: failure.IllegalState, Message: "generation 1 is not the newest, which is 2"}
	final := temporal.NewNonRetryableApplicationError(refused.Error(), activities.Fenced, refused)
	passing := &failure.Error{Code: failure.Unavailable, Message: "the database is not available", Err: errors.New("connection refused")}
	for name, c := range map[string]struct {
		err  error
		kind string // "" if it may be transient
	}{
		"unchanged":            {final, activities.Fenced},
		"wrapped":              {fmt.Errorf("end generation 1: %w", final), activities.Fenced},
		"wrapped twice":        {fmt.Errorf("restore: %w", fmt.Errorf("end generation 1: %w", final)), activities.Fenced},
		"joined":               {errors.Join(nil, final), activities.Fenced},
		"joined and wrapped":   {fmt.Errorf("terminate: %w", errors.Join(final, fmt.Errorf("again: %w", final))), activities.Fenced},
		"joined with a pass":   {errors.Join(final, passing), ""},
		"two words":            {fmt.Errorf("%w: %w", passing, final), ""},
		"passing":              {passing, ""},
		"passing and wrapped":  {fmt.Errorf("read the session: %w", passing), ""},
		"a kind that may pass": {fmt.Errorf("attempt: %w", temporal.NewApplicationError("cancelled", activities.NotHandedOver)), ""},
		"caused by a final":    {temporal.NewApplicationErrorWithOptions("again", "Again", temporal.ApplicationErrorOptions{Cause: final}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for where, run := range map[string]func(*testing.T, error) (int, error){"an activity": inAnActivity, "a local activity": inALocalActivity} {
				attempts, err := run(t, c.err)
				require.Error(t, err, where)
				if c.kind == "" {
					require.Equal(t, 3, attempts, "%s: attempts at %v", where, c.err)
					require.False(t, activities.IsFinal(err), where)
					continue
				}
				require.Equal(t, 1, attempts, "%s: attempts at %v", where, c.err)
				require.Equal(t, c.kind, activities.TypeOf(err), where)
				require.True(t, activities.IsFinal(err), where)
				require.Contains(t, activities.ReasonOf(err), "generation 1 is not the newest", where)
			}
		})
	}
}

// inAnActivity returns the error of a workflow whose activity fails with err in up to three
// attempts.
func inAnActivity(t *testing.T, err error) (attempts int, got error) {
	t.Helper()
	return attempted(t, err, func(ctx workflow.Context) error {
		return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: time.Minute,
			RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Millisecond, MaximumAttempts: 3},
		}), "fails").Get(ctx, nil)
	})
}

func inALocalActivity(t *testing.T, err error) (attempts int, got error) {
	t.Helper()
	return attempted(t, err, func(ctx workflow.Context) error {
		return workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
			StartToCloseTimeout: time.Minute,
			RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Millisecond, MaximumAttempts: 3},
		}), "fails").Get(ctx, nil)
	})
}

func attempted(t *testing.T, err error, call func(workflow.Context) error) (attempts int, got error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{&activities.Interceptor{}}})
	env.RegisterActivityWithOptions(func(context.Context) error {
		attempts++
		return err
	}, activity.RegisterOptions{Name: "fails"})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		got = call(ctx)
		return nil
	})
	require.NoError(t, env.GetWorkflowError())
	return attempts, got
}
