package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestRunsAreRevertedInOrderOfLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	var prompts, runs []string
	for range 3 {
		p := b.submit(t, "hello")
		runID := b.begin(t, p)
		_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted})
		require.NoError(t, err)
		prompts, runs = append(prompts, p), append(runs, runID)
	}
	// The clock of the worker that began the second run was an hour slow.
	b.sql(t, "UPDATE runs SET started_at = started_at - interval '1 hour' WHERE id = $1", runs[1])
	for i, p := range prompts {
		from, err := b.RunsFrom(b.ctx, b.id, p)
		require.NoError(t, err)
		require.Equal(t, runs[i:], from)
	}
	// Runs from before the column existed have no position.
	b.sql(t, "UPDATE runs SET began_seq = 0, started_at = now() - interval '2 hours' WHERE id = $1", runs[0])
	from, err := b.RunsFrom(b.ctx, b.id, prompts[0])
	require.NoError(t, err)
	require.Equal(t, runs, from)
	from, err = b.RunsFrom(b.ctx, b.id, "none")
	require.NoError(t, err)
	require.Empty(t, from)
}

// TestTimesAreThoseOfPostgres uses callers whose clocks are wrong by a day.
func TestTimesAreThoseOfPostgres(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: "p", SessionID: b.id, Content: "hello", CreatedAt: time.Now().Add(24 * time.Hour)})
	require.NoError(t, err)
	unclaimed, err := b.Unclaimed(b.ctx, "", 0, 10)
	require.NoError(t, err)
	require.Len(t, unclaimed, 1, "of no age by the server's clock")
	require.WithinDuration(t, time.Now(), p.CreatedAt, time.Hour)

	b.running(t)
	run := b.begin(t, p.ID)
	ahead := time.Now().Add(24 * time.Hour)
	require.NoError(t, b.appendOne(t, eventlog.Append{
		SessionID: b.id, RunID: run, Generation: 1, Token: "t1", LastFrame: 0,
		Questions: []eventlog.Question{{Frame: 0, Asked: question.Asked{ID: "q", Kind: question.Permission}, At: ahead, ExpiresAt: ahead.Add(time.Minute)}},
	}))
	pending, err := b.QuestionsPending(b.ctx, run, false)
	require.NoError(t, err)
	require.Len(t, pending, 1)
	require.WithinDuration(t, time.Now().Add(time.Minute), pending[0].ExpiresAt, time.Hour, "a minute by the server's clock")
}
