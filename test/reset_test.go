package test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
)

// resetsTried is the number of resets of a session to a task of its first workflow run, evenly
// spread over the tasks; with fewer tasks some are used twice. The tests of package workflows use
// all tasks.
const resetsTried = 6

// TestResetWorkflowKeepsSession resets the workflow of a session in its second
// sandbox to earlier tasks, each time during a turn: no prompt is lost or runs twice, and sandbox
// and files are kept.
func TestResetWorkflowKeepsSession(t *testing.T) {
	t.Parallel()
	s := startStackEnv(t, []string{"OVERWINTER_RECONCILE_EVERY=2s"})
	temporal, err := client.Dial(client.Options{HostPort: s.engine, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	defer temporal.Close()

	id := s.create(t, object{})
	stream := s.follow(t, id)
	s.prompt(t, id, "first", "write kept.txt: from the first turn")
	s.waitPrompt(t, id, "first", 60*time.Second)
	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/hibernate", nil)
	s.waitStatus(t, id, "hibernated", 60*time.Second)
	s.prompt(t, id, "second", "wake up")
	s.waitPrompt(t, id, "second", 60*time.Second)
	s.waitStatus(t, id, "running", 60*time.Second)
	before := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)

	open, err := temporal.DescribeWorkflowExecution(t.Context(), id, "")
	require.NoError(t, err)
	run := open.GetWorkflowExecutionInfo().GetExecution().GetRunId()
	printed, err := exec.Command(program(t, "overwinter"), "version").Output()
	require.NoError(t, err)
	version := strings.Fields(string(printed))[1]
	var tasks []int64
	events := temporal.GetWorkflowHistory(t.Context(), id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(t, err)
		if event.GetEventType() == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			tasks = append(tasks, event.GetEventId())
			stamp := event.GetWorkflowTaskCompletedEventAttributes().GetWorkerVersion().GetBuildId() //nolint:staticcheck // its replacement is set for versioned workers only
			require.Equal(t, version, stamp, "Temporal's reset points have the version of the worker")
		}
	}
	require.Greater(t, len(tasks), 2, "the first task, one between and the last")
	want := map[string]int{"first": 1, "second": 1, "after": 1}
	for n := range resetsTried {
		slow, next := fmt.Sprintf("slow%d", n), fmt.Sprintf("next%d", n)
		want[slow], want[next] = 1, 1
		s.prompt(t, id, slow, "slow 50ms: "+strings.Repeat(slow+" ", 40))
		s.prompt(t, id, next, "next")
		stream.wait(t, 60*time.Second, "the agent speaks", func(e event) bool {
			return e.Type == "text_delta" && strings.Contains(string(e.Data), slow)
		})
		_, err = temporal.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
			Namespace: client.DefaultNamespace, RequestId: uuid.NewString(), Reason: "tried by hand",
			WorkflowExecution:         &common.WorkflowExecution{WorkflowId: id, RunId: run},
			WorkflowTaskFinishEventId: tasks[n*(len(tasks)-1)/(resetsTried-1)],
		})
		require.NoError(t, err)
		for _, prompt := range []string{slow, next} {
			got := s.waitPrompt(t, id, prompt, 90*time.Second)
			require.Equal(t, "completed", got["status"], "reset %d: %v", n, got)
		}
		after := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)
		require.Equal(t, "running", after["status"], "reset %d", n)
		require.Equal(t, before["generation"], after["generation"], "reset %d: it works on in its sandbox", n)
	}
	s.prompt(t, id, "after", "recall\n$ cat kept.txt")
	s.waitPrompt(t, id, "after", 60*time.Second)
	text := s.text(t, id)
	require.Contains(t, text, "write kept.txt", "the agent remembers the first prompt")
	require.Contains(t, text, "from the first turn", "the files are there")
	ended := func(e event) bool {
		return e.Type == "turn_end" && strings.Contains(string(e.Data), `"promptId":"after"`)
	}
	stream.wait(t, 60*time.Second, "the stream has the last turn", ended)
	ends := map[string]int{}
	all := stream.all(t)
	for _, e := range all {
		if e.Type == "turn_end" {
			var d struct{ PromptID string }
			require.NoError(t, json.Unmarshal(e.Data, &d))
			ends[d.PromptID]++
		}
	}
	require.Equal(t, want, ends, "each prompt ran once")
	require.False(t, slices.ContainsFunc(all, func(e event) bool { return e.Type == "error" }), "nothing failed")
}
