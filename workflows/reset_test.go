package workflows_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/sessionclient"
)

// TestResetWorkflowContinuesFromRow resets a workflow on a real server, as an operator may do, to
// its first and to its last task: during a turn, while the session is hibernated, and while it is
// idle. No prompt may be lost or run twice, and the session must continue in its sandbox.
func TestResetWorkflowContinuesFromRow(t *testing.T) {
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
			r.awaitEnd("p1")
			r.prompt("p2", 3*time.Second, session.Hold)
			r.prompt("p3", 50*time.Millisecond, session.Hold)
			r.delivered("p2")
			r.resetTo(task)
			r.awaitEnd("p2")
			r.awaitEnd("p3")
			r.command(session.CommandHibernate)
			r.reach(session.Hibernated)
			r.resetTo(task)
			r.prompt("p4", 50*time.Millisecond, session.Hold)
			r.awaitEnd("p4")
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

// TestResetToAnyTaskContinuesFromRow resets the workflow of a session to each task of its first run
// while the session is in another state: idle in a later sandbox, in a turn, or hibernated. The
// repeated requests of the new run must be refused, so that no prompt is lost or runs twice, the
// running sandbox is kept, and no unsaved work is discarded.
func TestResetToAnyTaskContinuesFromRow(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]struct {
		before func(r *recorder, id string)
		costs  int64 // sandboxes for each reset
		every  int   // use only every n-th task if a reset takes long
	}{
		"idle": {every: 1, before: func(r *recorder, _ string) { r.reach(session.Running) }},
		"in a turn": {every: 2, before: func(r *recorder, id string) {
			r.prompt("slow_"+id, 400*time.Millisecond, session.Hold)
			r.prompt("next_"+id, 20*time.Millisecond, session.Hold)
			r.delivered("slow_" + id)
		}},
		"hibernated": {every: 2, costs: 1, before: func(r *recorder, _ string) {
			r.command(session.CommandHibernate)
			r.reach(session.Hibernated)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setupRecorder(t, "reset_any")
			r.world.reset = true
			r.world.inTask = "slow" // puts a task before and after every record
			r.start()
			r.prompt("p1", 50*time.Millisecond, session.Hold)
			r.awaitEnd("p1")
			r.command(session.CommandHibernate)
			r.reach(session.Hibernated)
			r.command(session.CommandWake)
			r.reach(session.Running)
			r.prompt("p2", 300*time.Millisecond, session.Hold)
			r.prompt("p3", 20*time.Millisecond, session.Hold)
			r.awaitEnd("p2")
			r.awaitEnd("p3")
			tasks := r.completedTasks(r.first)
			require.Greater(t, len(tasks), 15)
			r.world.locked(func() { r.world.inTask = "" })()
			r.reconcile()
			living, resets := r.world.generation, int64(0)
			for i := 0; i < len(tasks); i += mode.every {
				task := tasks[i]
				resets++
				id := fmt.Sprint(i)
				mode.before(r, id)
				r.reset(r.first, task)
				r.agrees()
				r.prompt("p_"+id, 20*time.Millisecond, session.Hold)
				r.wait(fmt.Sprintf("the end of every prompt after a reset to task %d of %d", i, len(tasks)), func() bool {
					for _, p := range r.world.prompts {
						if !p.status.Final() {
							return false
						}
					}
					return true
				})
			}
			r.command(session.CommandStop)
			r.reach(session.Terminated)
			require.NoError(t, r.client.GetWorkflow(t.Context(), r.world.id, "").Get(t.Context(), nil))

			r.world.mu.Lock()
			defer r.world.mu.Unlock()
			require.Empty(t, r.world.violations)
			for _, p := range r.world.prompts {
				require.Equal(t, session.PromptCompleted, p.status, p.ID)
				require.Equal(t, 1, p.deliveries, p.ID)
			}
			require.Equal(t, living+mode.costs*resets, r.world.generation, "a reset costs no sandbox")
		})
	}
}

// reconcile acts as the reconciler for the session, until the test ends.
func (r *recorder) reconcile() {
	o := sessionclient.New(r.client, client.DefaultNamespace, sessionclient.At(recordedQueues.Control))
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	r.t.Cleanup(func() {
		cancel()
		<-done
	})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if s, ok := r.world.attended(); ok {
				o.Revive(ctx, s) //nolint:errcheck // it is tried again
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
}

// attended returns the entry of the session in the store's list for the reconciler.
func (w *world) attended() (backlog.Attended, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := backlog.Attended{SessionID: w.id, Status: w.state, WorkflowRun: w.workflowRun}
	return s, w.loaded && !w.state.Final() && (w.state != session.Hibernated || w.firstQueued() != nil)
}

// agrees waits until the workflow of an awake session has the state of its row.
func (r *recorder) agrees() {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		answer, err := r.client.QueryWorkflow(r.t.Context(), r.world.id, "", contract.QueryState)
		var view contract.StateView
		if err != nil || answer.Get(&view) != nil {
			return false
		}
		r.world.mu.Lock()
		defer r.world.mu.Unlock()
		return r.world.state == session.Hibernated || view.Status == r.world.state && view.TransitionNo == r.world.transitionNo
	}, 2*time.Minute, 20*time.Millisecond, "the workflow does not know where its session is")
}

// resetTo resets the open workflow to one of its tasks. task chooses it from the ids of the events
// that completed the tasks.
func (r *recorder) resetTo(task func(completed []int64) int64) {
	r.t.Helper()
	open, err := r.client.DescribeWorkflowExecution(r.t.Context(), r.world.id, "")
	require.NoError(r.t, err)
	runID := open.GetWorkflowExecutionInfo().GetExecution().GetRunId()
	r.reset(runID, task(r.completedTasks(runID)))
}

func (r *recorder) completedTasks(runID string) (completed []int64) {
	r.t.Helper()
	events := r.client.GetWorkflowHistory(r.t.Context(), r.world.id, runID, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(r.t, err)
		if event.GetEventType() == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			completed = append(completed, event.GetEventId())
		}
	}
	return completed
}

// reset ends the open run of the workflow and starts another from a task in the history of the
// given run.
func (r *recorder) reset(runID string, task int64) {
	r.t.Helper()
	_, err := r.client.ResetWorkflowExecution(r.t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: client.DefaultNamespace, RequestId: uuid.NewString(), Reason: "tried by hand",
		WorkflowExecution:         &common.WorkflowExecution{WorkflowId: r.world.id, RunId: runID},
		WorkflowTaskFinishEventId: task,
	})
	require.NoError(r.t, err)
}
