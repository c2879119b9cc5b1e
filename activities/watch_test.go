package activities

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/metrics"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// endingStore ends one run and records transitions.
type endingStore struct {
	Store
	run run.Run
}

func (s endingStore) RunEnd(context.Context, run.Ending) (run.Run, error) {
	return s.run, nil
}

func (endingStore) TransitionRecord(context.Context, session.Transition) error { return nil }

func (endingStore) TransitionRecordReady(context.Context, session.Transition, session.SandboxRow, string, run.Proposal) (run.Verdict, error) {
	return run.Verdict{Granted: true}, nil
}

func (endingStore) CommandRequest(_ context.Context, id string) (string, error) {
	return "request-of-" + id, nil
}

// appendedLog takes every append.
type appendedLog struct{ Log }

func (appendedLog) Append(context.Context, eventlog.Append) error { return nil }

func TestOneLineForEachTurnTransitionAndQuestion(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	watched := watching{metrics: metrics.NewWorker(nil), logger: slog.New(slog.NewJSONHandler(&out, nil))}
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	claim := run.Run{
		ID: "run_1", SessionID: "ses_1", PromptID: "prm_1", Attempt: 2, Generation: 3, Outcome: session.OutcomeFailed,
		Reason: "the model server refuses\nsecond line", Usage: usage.Usage{InputTokens: 4, OutputTokens: 5, ToolCalls: 6},
		StartedAt: began, EndedAt: began.Add(time.Second), Ended: &run.Ended{Agent: "demo", QueueWait: 7 * time.Millisecond, RequestID: "mine-42"},
	}
	line := func() (fields map[string]any) {
		t.Helper()
		require.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
		require.NoError(t, json.Unmarshal(out.Bytes(), &fields))
		delete(fields, "time")
		out.Reset()
		return fields
	}
	_, err := watchedStore{endingStore{run: claim}, watched}.RunEnd(t.Context(), run.Ending{})
	require.NoError(t, err)
	require.Equal(t, map[string]any{
		"level": "WARN", "msg": "turn ended", "session_id": "ses_1", "prompt_id": "prm_1", "run_id": "run_1", "agent": "demo", "outcome": "failed",
		"reason": "the model server refuses", "duration": 1e9, "queue_wait": 7e6, "input_tokens": 4.0, "output_tokens": 5.0, "tool_calls": 6.0,
		"attempt": 2.0, "generation": 3.0, "request_id": "mine-42",
	}, line())
	claim.Ended = nil
	_, err = watchedStore{endingStore{run: claim}, watched}.RunEnd(t.Context(), run.Ending{})
	require.NoError(t, err)
	require.Empty(t, out.String(), "another call has ended it")

	verdict, err := watchedStore{endingStore{}, watched}.TransitionRecordReady(t.Context(), session.Transition{
		SessionID: "ses_1", From: session.Restoring, To: session.Running, Reason: "prompt", Generation: 4, Since: began, At: began.Add(time.Second),
	}, session.SandboxRow{}, "", run.Proposal{})
	require.NoError(t, err)
	require.True(t, verdict.Granted)
	require.Equal(t, map[string]any{
		"level": "INFO", "msg": "session status changed", "session_id": "ses_1", "from": "restoring", "to": "running", "reason": "prompt",
		"generation": 4.0, "duration": 1e9,
	}, line())

	require.NoError(t, watchedStore{endingStore{}, watched}.TransitionRecord(t.Context(), session.Transition{
		SessionID: "ses_1", From: session.Hibernating, To: session.Hibernated, Reason: "idle", Generation: 3, Since: began, At: began.Add(2 * time.Second),
	}))
	require.Equal(t, map[string]any{
		"level": "INFO", "msg": "session status changed", "session_id": "ses_1", "from": "hibernating", "to": "hibernated", "reason": "idle",
		"generation": 3.0, "duration": 2e9,
	}, line())

	require.NoError(t, watchedStore{endingStore{}, watched}.TransitionRecord(t.Context(), session.Transition{
		SessionID: "ses_1", From: session.Running, To: session.Hibernating, Reason: "requested", Generation: 3, Command: "cmd_1",
	}))
	require.Equal(t, map[string]any{
		"level": "INFO", "msg": "session status changed", "session_id": "ses_1", "from": "running", "to": "hibernating", "reason": "requested",
		"generation": 3.0, "command_id": "cmd_1", "request_id": "request-of-cmd_1",
	}, line())

	require.NoError(t, watchedLog{appendedLog{}, watched}.Append(t.Context(), eventlog.Append{SessionID: "ses_1", RunID: "run_1", Questions: []eventlog.Question{
		{Asked: question.Asked{Kind: question.Permission, Title: "secret text"}, ExpiresAt: began},
		{Asked: question.Asked{Kind: question.Permission}, Decided: &question.Answer{}},
	}}))
	require.Equal(t, map[string]any{
		"level": "INFO", "msg": "question asked", "session_id": "ses_1", "run_id": "run_1", "kind": string(question.Permission),
		"expires_at": "2026-01-02T03:04:05Z",
	}, line())
}

func TestReasonIsTruncatedInLog(t *testing.T) {
	t.Parallel()
	require.Equal(t, strings.Repeat("é", 100)+"…", brief(strings.Repeat("é", 101)))
	require.Equal(t, "a"+strings.Repeat("é", 99)+"…", brief("a"+strings.Repeat("é", 101)))
	require.Equal(t, "one", brief("one\ntwo"))
}
