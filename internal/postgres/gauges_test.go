package postgres_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestSessionsAreCountedByStatusAndAgent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	all := func(from string) (found string) {
		t.Helper()
		b.row(t, &found, `SELECT coalesce(json_agg(json_build_array(status, agent, n) ORDER BY status, agent), '[]')::text FROM `+from)
		return found
	}
	const rows = `(SELECT status, agent, count(*) AS n FROM sessions GROUP BY status, agent) s`
	const sums = `(SELECT status, agent, sum(n) AS n FROM session_counts GROUP BY status, agent HAVING sum(n) <> 0) s`
	require.Equal(t, all(rows), all(sums))
	counts, err := b.SessionCounts(b.ctx)
	require.NoError(t, err)
	require.Equal(t, []backlog.Count{{Status: session.Running, Agent: "demo", Sessions: 1}}, counts)

	b.sql(t, `INSERT INTO sessions (id, status, agent, lazy, created_at, last_activity_at, idle_timeout_ns, metadata, options)
		SELECT 'ses_' || n, 'initializing', 'a' || n % 3, true, now(), now(), 1, '{}', '{}' FROM generate_series(1, 600) n`)
	var group sync.WaitGroup
	for n := range 4 { // while they are summed up by two concurrent calls
		group.Go(func() {
			if n%2 == 0 {
				require.NoError(t, b.SessionCountsFold(b.ctx))
				return
			}
			b.sql(t, `UPDATE sessions SET status = 'terminated' WHERE id LIKE $1`, fmt.Sprintf("ses_%d%%", n))
		})
	}
	group.Wait()
	b.sql(t, `DELETE FROM sessions WHERE id = 'ses_7'`)
	require.Equal(t, all(rows), all(sums))
	require.NoError(t, b.SessionCountsFold(b.ctx))
	require.Equal(t, all(rows), all(sums))
	var differences int64
	b.row(t, &differences, `SELECT count(*) FROM session_counts`)
	require.Less(t, differences, int64(600))
}

func TestUnfinishedPromptsAreCounted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	empty, err := b.Unfinished(b.ctx)
	require.NoError(t, err)
	require.Equal(t, backlog.Unfinished{}, empty)

	first := b.submit(t, "1")
	b.sql(t, `UPDATE prompts SET created_at = now() - interval '1 minute' WHERE id = $1`, first)
	got, err := b.Unfinished(b.ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, got.Queued)
	require.Greater(t, got.Oldest, 59*time.Second)

	runID := b.begin(t, first)
	b.submit(t, "2")
	got, err = b.Unfinished(b.ctx)
	require.NoError(t, err)
	require.Equal(t, backlog.Unfinished{Queued: 1, Processing: 1}, got, "a prompt waits for the previous one")

	ended, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	require.Equal(t, "demo", ended.Ended.Agent)
	require.Greater(t, ended.Ended.QueueWait, 59*time.Second)
	ended, err = b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	require.Nil(t, ended.Ended, "another call has ended the run")
}

func TestRequestIDIsStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	p := session.Prompt{ID: "p1", SessionID: b.id, Content: "hello", RequestID: "first"}
	_, _, _, err := b.PromptSubmit(b.ctx, p)
	require.NoError(t, err)
	p.RequestID = "second"
	stored, _, created, err := b.PromptSubmit(b.ctx, p)
	require.NoError(t, err)
	require.False(t, created, "another request with the same prompt is a repeat")
	require.Equal(t, "first", stored.RequestID)
	runID := b.begin(t, "p1")
	start, err := b.RunFence(b.ctx, runID, "token")
	require.NoError(t, err)
	require.Equal(t, "first", start.Prompt.RequestID)
	ended, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	require.Equal(t, "first", ended.Ended.RequestID)
	_, err = b.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandHibernate, RequestID: "third"})
	require.NoError(t, err)
	b.submit(t, "without")
	_, err = b.PromptsCancel(b.ctx, b.id, "requested")
	require.NoError(t, err)
	var ids []string
	for _, e := range b.events(t) {
		var data struct {
			Prompt, Command struct{ RequestID string }
		}
		require.NoError(t, json.Unmarshal(e.Data, &data))
		if e.Type == event.TypePrompt || e.Type == event.TypeCommand {
			ids = append(ids, e.Type+" "+data.Prompt.RequestID+data.Command.RequestID)
		}
	}
	require.Equal(t, []string{"prompt first", "prompt first", "prompt first", "command third", "prompt ", "prompt "}, ids)
}
