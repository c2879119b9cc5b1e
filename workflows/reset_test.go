package workflows_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestAWorkflowThatIsResetContinuesWhereItsSessionStands resets a workflow on a real server, as one may by hand, to its
// first and to its last task: in the middle of a turn, while the session sleeps, and while it is idle. No prompt is lost
// or runs twice, and the session continues in its sandbox.
func TestAWorkflowThatIsResetContinuesWhereItsSessionStands(t *testing.T) {
	t.Parallel()
	for name, task := range map[string]func(completed []int64) int64{
		"first task": func(completed []int64) int64 { return completed[0] },
		"last task":  func(completed []int64) int64 { return completed[len(completed)-1] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setupRecorder(t, "reset")
			r.world.reset = true
			r.start()
			r.prompt("p1", 50*time.Millisecond, session.Hold)
			r.over("p1")
			r.prompt("p2", 3*time.Second, session.Hold)
			r.prompt("p3", 50*time.Millisecond, session.Hold)
			r.delivered("p2")
			r.resetTo(task)
			r.over("p2")
			r.over("p3")
			r.command(session.CommandHibernate)
			r.reach(session.Hibernated)
			r.resetTo(task)
			r.prompt("p4", 50*time.Millisecond, session.Hold)
			r.over("p4")
			r.resetTo(task)
			r.command(session.CommandStop)
			r.reach(session.Terminated)

			r.world.mu.Lock()
			defer r.world.mu.Unlock()
			require.Empty(t, r.world.violations)
			for _, p := range r.world.prompts {
				require.Equal(t, session.PromptCompleted, p.status, p.ID)
				require.Equal(t, 1, p.deliveries, p.ID)
			}
			require.EqualValues(t, 2, r.world.generation, "a reset costs no sandbox")
		})
	}
}

// resetTo resets the open workflow to one of its tasks, chosen from the ids of the events that ended them.
func (r *recorder) resetTo(task func(completed []int64) int64) {
	r.t.Helper()
	open, err := r.client.DescribeWorkflowExecution(r.t.Context(), r.world.id, "")
	require.NoError(r.t, err)
	runID := open.GetWorkflowExecutionInfo().GetExecution().GetRunId()
	var completed []int64
	events := r.client.GetWorkflowHistory(r.t.Context(), r.world.id, runID, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(r.t, err)
		if event.GetEventType() == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			completed = append(completed, event.GetEventId())
		}
	}
	_, err = r.client.ResetWorkflowExecution(r.t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: "default", RequestId: uuid.NewString(), Reason: "tried by hand",
		WorkflowExecution:         &common.WorkflowExecution{WorkflowId: r.world.id, RunId: runID},
		WorkflowTaskFinishEventId: task(completed),
	})
	require.NoError(r.t, err)
}
