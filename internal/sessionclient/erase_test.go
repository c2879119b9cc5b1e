package sessionclient_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestEraseLeavesNothingOfWorkflow deletes a workflow with two closed runs and an open one, and
// keeps other workflows.
func TestEraseLeavesNothingOfWorkflow(t *testing.T) {
	t.Parallel()
	ctx, o, id := setup(t)
	other := session.NewID(session.SessionPrefix)
	require.NoError(t, o.SignalCommands(ctx, other))
	var runs []string
	for range 3 {
		require.NoError(t, o.SignalCommands(ctx, id))
		run, err := o.CurrentRun(ctx, id)
		require.NoError(t, err)
		runs = append(runs, run)
		if len(runs) < 3 {
			require.NoError(t, o.SignalStop(ctx, id))
			require.NoError(t, engine.GetWorkflow(ctx, id, run).Get(ctx, nil))
		}
	}
	listed := func(id string) int {
		list, err := engine.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Namespace: "default", Query: "WorkflowId = '" + id + "'"})
		require.NoError(t, err)
		return len(list.GetExecutions())
	}
	require.Eventually(t, func() bool { return listed(id) == 3 }, waitLimit, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		found, err := o.Erase(ctx, id)
		require.NoError(t, err)
		return !found
	}, waitLimit, 200*time.Millisecond)
	require.Zero(t, listed(id))
	for _, run := range runs {
		history := engine.GetWorkflowHistory(ctx, id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		require.True(t, history.HasNext(), "the error")
		_, err := history.Next()
		require.ErrorContains(t, err, "not found")
	}
	found, err := o.Erase(ctx, "ses_' OR WorkflowId != '")
	require.False(t, found)
	require.Equal(t, failure.Invalid, failure.CodeOf(err), "error: %v", err)
	current, err := o.CurrentRun(ctx, other)
	require.NoError(t, err)
	require.NotEmpty(t, current)
	require.NoError(t, o.SignalStop(ctx, other))
}
