package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

func TestPromptIsServedFromSubmitToEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	p := b.submit(t, "hello")
	runID := b.begin(t, p)
	require.NoError(t, b.appendOne(t, eventlog.Append{
		SessionID: b.id, RunID: runID, Generation: 1, Token: "t1", LastFrame: 3, State: []byte("state"),
		Events: []eventlog.Draft{
			draft("block_start", 0, 0, `{"block":{"id":"a","type":"assistant_text","status":"streaming","createdAt":"2026-01-01T00:00:00Z","content":""}}`),
			draft("text_delta", 1, 0, `{"blockId":"a","delta":"hel"}`),
			draft("text_delta", 2, 0, `{"blockId":"a","delta":"lo"}`),
		},
	}))
	c, err := b.Conversation(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, "hello", c.Threads[0].Blocks[0].Content)

	ended, err := b.RunEnd(b.ctx, run.Ending{
		RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted,
		Usage: usage.Usage{InputTokens: 5, OutputTokens: 7, CostUSD: 0.5, ToolCalls: 2},
	})
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, ended.Outcome)
	require.EqualValues(t, 3, ended.LastFrame)
	require.Empty(t, ended.Translator, "the state of an ended run is deleted")

	got, err := b.PromptGet(b.ctx, b.id, p)
	require.NoError(t, err)
	require.Equal(t, session.PromptCompleted, got.Status)
	require.False(t, got.EndedAt.IsZero())
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	s.Metrics.ActiveSeconds = 0 // grows while the session runs
	require.Equal(t, session.Metrics{Messages: 1, ToolCalls: 2, InputTokens: 5, OutputTokens: 7, CostUSD: new(0.5)}, s.Metrics)
	require.Equal(t, []string{
		"status", "prompt", "queue", "title", "turn_start", "prompt", "queue",
		"block_start", "text_delta", "text_delta", "turn_end", "prompt", "queue",
	}, b.types(t, 0))
	for i, e := range b.events(t) {
		require.EqualValues(t, i+1, e.Seq)
	}
}
