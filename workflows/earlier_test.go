package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// earlier makes a worker behave like a version that predates every change guarded by
// workflow.GetVersion.
type earlier struct {
	interceptor.WorkerInterceptorBase
}

func (*earlier) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &earlierInbound{interceptor.WorkflowInboundInterceptorBase{Next: next}}
}

type earlierInbound struct {
	interceptor.WorkflowInboundInterceptorBase
}

func (i *earlierInbound) Init(next interceptor.WorkflowOutboundInterceptor) error {
	return i.Next.Init(&earlierOutbound{interceptor.WorkflowOutboundInterceptorBase{Next: next}})
}

type earlierOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
}

func (*earlierOutbound) GetVersion(workflow.Context, string, workflow.Version, workflow.Version) workflow.Version {
	return workflow.DefaultVersion
}

// TestDeployRecoversSessionLeftInError starts with a workflow of an earlier version that waits for
// a person although the cause of the error has gone away. The reconciler of this version replaces
// the workflow.
func TestDeployRecoversSessionLeftInError(t *testing.T) {
	t.Parallel()
	r := setupEngine(t, "earlier_error")
	r.world.state, r.world.reason = session.Error, "the database is not available: connection refused"
	stopEarlier := r.work(&earlier{})
	r.start()
	r.agrees()
	stopEarlier()
	r.world.locked(func() { r.world.workflowRun = "" })() // the earlier version does not record it

	t.Cleanup(r.work())
	r.agrees()
	r.reconcile()
	r.reach(session.Running)
	r.prompt("p1", 50*time.Millisecond, session.Hold)
	r.awaitEnd("p1")
	r.stop()
	require.Empty(t, r.world.violations)
	replaced, err := r.client.DescribeWorkflowExecution(t.Context(), r.world.id, r.first)
	require.NoError(t, err)
	require.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, replaced.GetWorkflowExecutionInfo().GetStatus())
}
