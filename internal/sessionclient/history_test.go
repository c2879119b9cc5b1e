package sessionclient_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/sessionclient"
	"github.com/overwinter-dev/overwinter/internal/why"
)

// failingLife is a workflow with an activity that fails once, which gets a signal that its sandbox has ended, and continues as new once.
func failingLife(ctx workflow.Context, in contract.WorkflowInput) error {
	if in.Carried == nil {
		workflow.GetSignalChannel(ctx, contract.SignalSandbox).Receive(ctx, nil)
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: waitLimit, RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond, MaximumAttempts: 2},
	})
	if err := workflow.ExecuteActivity(ctx, "RunTurn").Get(ctx, nil); err != nil {
		return err
	}
	if in.Carried == nil {
		return workflow.NewContinueAsNewError(ctx, "failingLife", contract.WorkflowInput{SessionID: in.SessionID, Carried: &contract.CarriedState{}})
	}
	return nil
}

func TestHistoryListsFailedAttempts(t *testing.T) {
	t.Parallel()
	const queueName = "history-of-attempts"
	w := worker.New(engine, queueName, worker.Options{})
	w.RegisterWorkflowWithOptions(failingLife, workflow.RegisterOptions{Name: "failingLife"})
	w.RegisterActivityWithOptions(func(ctx context.Context) error {
		if activity.GetInfo(ctx).Attempt == 1 {
			return errors.New("the database is not available")
		}
		return nil
	}, activity.RegisterOptions{Name: "RunTurn"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)

	id := session.NewID(session.SessionPrefix)
	_, err := engine.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: queueName}, "failingLife", contract.WorkflowInput{SessionID: id})
	require.NoError(t, err)
	c := sessionclient.New(engine, "default", sessionclient.At(queueName))
	sent := 0 // a slow Temporal may take a signal without answering in time
	require.Eventually(t, func() bool {
		sent++
		return c.SignalSandbox(t.Context(), id, contract.SandboxSignal{Generation: 1, Reason: "it exceeded a limit"}) == nil
	}, waitLimit, 50*time.Millisecond)
	var got why.History
	require.Eventually(t, func() bool {
		got = c.History(t.Context(), id)
		return got.Err == "" && !got.Open && len(got.Events) >= 3
	}, waitLimit, 50*time.Millisecond)
	require.False(t, got.Truncated)
	var failures, signals int
	for _, e := range got.Events {
		switch e.Kind {
		case why.AttemptFailed:
			failures++
			require.Equal(t, "RunTurn", e.Activity)
			require.Contains(t, e.Failure.Message, "the database is not available")
			require.EqualValues(t, 2, e.Attempt)
		case why.Signalled:
			signals++
			require.Equal(t, "it exceeded a limit", e.Sandbox)
			require.EqualValues(t, 1, e.Generation)
		}
	}
	require.Equal(t, 2, failures, "of both runs: %+v", got.Events)
	require.Positive(t, signals)
	require.LessOrEqual(t, signals, sent)
	require.Empty(t, c.History(t.Context(), session.NewID(session.SessionPrefix)), "of a workflow that was never started")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NotEmpty(t, c.History(ended, id).Err)
}

// TestHistoryIsReadInPages reads runs that have continued as new, the newest first, with masked
// payloads.
func TestHistoryIsReadInPages(t *testing.T) {
	t.Parallel()
	const queueName = "history-in-pages"
	w := worker.New(engine, queueName, worker.Options{})
	w.RegisterWorkflowWithOptions(failingLife, workflow.RegisterOptions{Name: "failingLife"})
	w.RegisterActivityWithOptions(func() (string, error) { return "my key", nil }, activity.RegisterOptions{Name: "RunTurn"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	id := session.NewID(session.SessionPrefix)
	run, err := engine.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: queueName}, "failingLife", contract.WorkflowInput{SessionID: id})
	require.NoError(t, err)
	c := sessionclient.New(engine, "default", sessionclient.At(queueName))
	require.NoError(t, c.SignalSandbox(t.Context(), id, contract.SandboxSignal{Generation: 1, Reason: "x"}))
	require.NoError(t, engine.GetWorkflow(t.Context(), id, "").Get(t.Context(), nil))

	mask := func(raw json.RawMessage) json.RawMessage {
		return bytes.ReplaceAll(raw, []byte("my key"), []byte("[masked]"))
	}
	var runs []string
	for cursor, pages := "", 0; ; pages++ {
		events, next, err := c.HistoryPage(t.Context(), id, 3, cursor, mask)
		require.NoError(t, err)
		for _, e := range events {
			if len(runs) == 0 || runs[len(runs)-1] != e.RunID {
				runs = append(runs, e.RunID)
			}
			require.NotContains(t, string(e.Event), base64.StdEncoding.EncodeToString([]byte(`"my key"`)))
		}
		if cursor = next; cursor == "" {
			require.Greater(t, pages, 3)
			break
		}
	}
	require.Len(t, runs, 2)
	require.Equal(t, run.GetRunID(), runs[1], "the first one is last")
	_, _, err = c.HistoryPage(t.Context(), id, 3, "x", mask)
	require.Equal(t, failure.Invalid, failure.CodeOf(err))
	_, _, err = c.HistoryPage(t.Context(), session.NewID(session.SessionPrefix), 3, "", mask)
	require.Equal(t, failure.NoSession, failure.CodeOf(err))
}
