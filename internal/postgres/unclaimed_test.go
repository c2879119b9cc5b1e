package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestWhichSessionsAreSignalled(t *testing.T) { //nolint:tparallel // the rows share a database
	t.Parallel()
	shared := setup(t)
	open := func(b *harness, t *testing.T) {
		_, err := b.SessionOpen(b.ctx, b.id, "w1")
		require.NoError(t, err)
	}
	lost := func(b *harness, t *testing.T) { require.NoError(t, b.SessionClose(b.ctx, b.id)) }
	hibernating := func(b *harness, t *testing.T) {
		b.running(t)
		b.transit(t, session.EventHibernate, session.ReasonIdle)
	}
	hibernated := func(b *harness, t *testing.T) {
		hibernating(b, t)
		b.transit(t, session.EventSaved, session.ReasonIdle)
	}
	failed := func(b *harness, t *testing.T) { b.transit(t, session.EventFail, "why") }
	prompt := func(b *harness, t *testing.T) { b.submit(t, "first") }
	turn := func(b *harness, t *testing.T) { b.begin(t, b.submit(t, "in progress")) }
	running := func(b *harness, t *testing.T) { b.running(t) }
	eager := func(b *harness, t *testing.T) {
		b.sql(t, "UPDATE sessions SET lazy = false WHERE id = $1", b.id)
	}
	closed := func(b *harness, t *testing.T) { require.NoError(t, b.SessionClose(b.ctx, b.id)) }
	asleep := func(b *harness, t *testing.T) { b.asleepInATurn(t) }
	stopped := func(b *harness, t *testing.T) { b.transit(t, session.EventStop, "") }
	hold := func(b *harness, t *testing.T) { b.holdQueue(t, "") }
	release := func(b *harness, t *testing.T) { b.release(t) }
	type steps []func(*harness, *testing.T)
	const none, session1, prompt1 = "none", "session", "prompt"
	for name, c := range map[string]struct { //nolint:paralleltest // see above
		steps steps
		want  string
	}{
		"lazy, and not needed yet":                {steps{}, none},
		"the signal of the start was lost":        {steps{eager}, session1},
		"unloaded before its first prompt":        {steps{open, closed}, none},
		"unloaded, a run was left open":           {steps{running, turn, asleep, open, closed}, session1},
		"the signal of the first prompt was lost": {steps{prompt}, prompt1},
		"the workflow was lost while running":     {steps{running, lost}, session1},
		"the workflow was lost in a turn":         {steps{running, turn, lost}, session1},
		"lost while hibernating":                  {steps{hibernating, lost}, session1},
		"asleep with its workflow closed":         {steps{hibernated, lost}, none},
		"a prompt for a hibernated session":       {steps{hibernated, lost, prompt}, prompt1},
		"an error rests":                          {steps{failed, lost}, none},
		"an error with a prompt has a workflow":   {steps{prompt, failed, lost}, prompt1},
		"held before its first prompt":            {steps{hold, prompt}, none},
		"held and asleep":                         {steps{hibernated, hold, prompt, lost}, none},
		"held, open and asleep":                   {steps{hibernated, open, hold, prompt}, none},
		"held and running":                        {steps{running, open, hold, prompt}, none},
		"held, the workflow was lost":             {steps{running, hold, prompt, lost}, session1},
		"held, the workflow was lost in a turn":   {steps{running, turn, hold, prompt, lost}, session1},
		"released, the signal was lost":           {steps{hibernated, open, hold, prompt, release}, prompt1},
		"over":                                    {steps{prompt, stopped}, none},
		"open and waiting for a prompt":           {steps{open}, none},
		"open, the prompt's signal was lost":      {steps{open, prompt}, prompt1},
		"open and running, the signal was lost":   {steps{running, open, prompt}, prompt1},
		"open, prompts wait for a turn":           {steps{running, open, turn, prompt}, none},
		"open and asleep, the signal was lost":    {steps{hibernated, open, prompt}, prompt1},
		"open, prompts wait for the hibernation":  {steps{hibernating, open, prompt}, none},
		"open, prompts wait for a person":         {steps{prompt, failed, open}, none},
	} {
		t.Run(name, func(t *testing.T) {
			b := &harness{DB: shared.DB, url: shared.url, ctx: shared.ctx}
			b.id = b.session(t)
			for _, step := range c.steps {
				step(b, t)
			}
			require.Empty(t, b.unclaimed(t), "all of it is young")
			b.sql(t, "UPDATE sessions SET last_activity_at = now() - interval '2 hours' WHERE id = $1", b.id)
			b.sql(t, "UPDATE prompts SET created_at = now() - interval '2 hours', started_at = started_at - interval '2 hours' WHERE session_id = $1", b.id)
			unclaimed := b.unclaimed(t)
			switch c.want {
			case none:
				require.Empty(t, unclaimed)
			case session1:
				require.Equal(t, []backlog.Unclaimed{{SessionID: b.id}}, unclaimed)
			case prompt1:
				require.Len(t, unclaimed, 1)
				require.Equal(t, b.id, unclaimed[0].SessionID)
				p, err := b.PromptGet(b.ctx, b.id, unclaimed[0].PromptID)
				require.NoError(t, err)
				require.Equal(t, "first", p.Content)
				require.Equal(t, p.Ordinal, unclaimed[0].Ordinal)
			}
		})
	}
}

// unclaimed returns the entries of this session that are older than an hour.
func (b *harness) unclaimed(t *testing.T) []backlog.Unclaimed {
	t.Helper()
	all, err := b.Unclaimed(b.ctx, "", time.Hour, 1000)
	require.NoError(t, err)
	return slices.DeleteFunc(all, func(r backlog.Unclaimed) bool { return r.SessionID != b.id })
}

func TestOneSignalPerSessionUpToLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.submit(t, "1")
	b.submit(t, "2")
	other := b.session(t)
	b.sql(t, "UPDATE sessions SET lazy = false WHERE id = $1", other)
	unclaimed, err := b.Unclaimed(b.ctx, "", -time.Second, 10)
	require.NoError(t, err)
	want := []backlog.Unclaimed{{SessionID: b.id, PromptID: first, Ordinal: 1}, {SessionID: other}}
	require.Equal(t, want, unclaimed, "in order of ids")
	var paged []backlog.Unclaimed
	after := ""
	for {
		unclaimed, err = b.Unclaimed(b.ctx, after, -time.Second, 1)
		require.NoError(t, err)
		if len(unclaimed) == 0 {
			break
		}
		require.Len(t, unclaimed, 1)
		paged, after = append(paged, unclaimed...), unclaimed[0].SessionID
	}
	require.Equal(t, want, paged)
}

// TestDelayedSessionsDoNotHideOthers creates more delayed sessions than one call reads, with ids
// that precede the others.
func TestDelayedSessionsDoNotHideOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sql(t, `INSERT INTO sessions (id, status, agent, lazy, created_at, last_activity_at, idle_timeout_ns, metadata, options)
		SELECT 'ses_0000' || n, CASE WHEN n % 2 = 0 THEN 'hibernated' ELSE 'initializing' END, 'demo', true,
			now() - interval '25 hours', now() - interval '25 hours', 1, '{}', '{}' FROM generate_series(1, 100) n`)
	prompt := b.submit(t, "never signalled")
	unclaimed, err := b.Unclaimed(b.ctx, "", -time.Second, 10)
	require.NoError(t, err)
	require.Equal(t, []backlog.Unclaimed{{SessionID: b.id, PromptID: prompt, Ordinal: 1}}, unclaimed)
}

func TestSessionsWithOpenWorkflow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	attended := func(quiet time.Duration) []backlog.Attended {
		all, err := b.Attended(b.ctx, "", quiet, 10)
		require.NoError(t, err)
		return all
	}
	_, err := b.SessionOpen(b.ctx, b.id, "w1")
	require.NoError(t, err)
	require.Empty(t, attended(0), "a lazy session that rests")
	b.running(t)
	require.Equal(t, []backlog.Attended{{SessionID: b.id, Status: session.Running, WorkflowRun: "w1"}}, attended(0))
	run := b.begin(t, b.submit(t, "1"))
	require.Equal(t, []backlog.Attended{{SessionID: b.id, Status: session.Running, WorkflowRun: "w1"}}, attended(time.Hour), "its run was seen lately")
	require.Equal(t, []backlog.Attended{{SessionID: b.id, RunID: run, Status: session.Running, WorkflowRun: "w1"}}, attended(-time.Second))
	page, err := b.Attended(b.ctx, b.id, 0, 10)
	require.NoError(t, err)
	require.Empty(t, page)
	b.asleepInATurn(t)
	require.Len(t, attended(-time.Second), 1, "asleep, and a run is open")
	require.NoError(t, b.SessionClose(b.ctx, b.id))
	require.Empty(t, attended(0), "the relay handles sessions that are not loaded")
}

// asleepInATurn makes a session hibernated while its run is open, which earlier versions could
// cause.
func (b *harness) asleepInATurn(t *testing.T) {
	t.Helper()
	b.sql(t, "UPDATE sessions SET status = 'hibernated', running_since = NULL WHERE id = $1", b.id)
}
