package workflows_test

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/workflows"
)

// TestReplaysRecordedHistories checks that sessions that are open while a new version is deployed
// continue with that version. If it fails, the change needs workflow.GetVersion, and the earlier
// histories must be moved to a folder named after the change that they lack.
func TestReplaysRecordedHistories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/histories/*.json")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), len(paths))
	older, err := filepath.Glob("testdata/histories/*/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, older)
	for _, file := range append(files, older...) {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(file, "testdata/histories/"), ".json"), func(t *testing.T) {
			t.Parallel()
			require.NoError(t, replay(t, file))
		})
	}
}

// TestReplayDetectsChange omits one activity and adds one.
func TestReplayDetectsChange(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]*changed{
		"left out": {skip: "FlushSandbox"},
		"added":    {twice: "CloseSession"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, replay(t, "testdata/histories/without_records_in_task/hello.json", change), "TMPRL1100")
		})
	}
}

func replay(t *testing.T, file string, interceptors ...interceptor.WorkerInterceptor) error {
	t.Helper()
	r, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{
		DisableRegistrationAliasing: true, Interceptors: interceptors,
	})
	require.NoError(t, err)
	r.RegisterWorkflowWithOptions(workflows.Session, workflow.RegisterOptions{Name: contract.WorkflowName})
	quiet := sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))
	return r.ReplayWorkflowHistoryFromJSONFile(quiet, file)
}

// changed is a slightly different version of the workflow.
type changed struct {
	interceptor.WorkerInterceptorBase
	skip, twice string
}

func (c *changed) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &changedInbound{WorkflowInboundInterceptorBase: interceptor.WorkflowInboundInterceptorBase{Next: next}, change: c}
}

type changedInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	change *changed
}

func (i *changedInbound) Init(next interceptor.WorkflowOutboundInterceptor) error {
	return i.Next.Init(&changedOutbound{WorkflowOutboundInterceptorBase: interceptor.WorkflowOutboundInterceptorBase{Next: next}, change: i.change})
}

type changedOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	change *changed
}

func (o *changedOutbound) ExecuteActivity(ctx workflow.Context, activity string, args ...any) workflow.Future {
	switch activity {
	case o.change.skip:
		done, set := workflow.NewFuture(ctx)
		set.SetValue(nil)
		return done
	case o.change.twice:
		o.Next.ExecuteActivity(ctx, activity, args...)
	}
	return o.Next.ExecuteActivity(ctx, activity, args...)
}
