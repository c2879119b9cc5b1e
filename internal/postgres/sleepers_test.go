package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestPeriodicQueriesSkipHibernatedSessions checks that the statements that every worker runs
// every few seconds read no rows of sleeping or terminated sessions. It counts the rows that the
// server has read.
func TestPeriodicQueriesSkipHibernatedSessions(t *testing.T) {
	t.Parallel()
	const n = 5000
	url := postgrestest.URL(t)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	for _, statement := range []string{
		`INSERT INTO sessions (id, status, agent, lazy, created_at, last_activity_at, idle_timeout_ns, metadata, options, generation, loaded)
			SELECT 'ses_' || md5(i::text), CASE WHEN i % 10 < 3 THEN 'hibernated' ELSE 'terminated' END, 'demo', true, now(), now() - interval '1 day', 1,
				'{}', '{}', 1, i % 20 = 0 FROM generate_series(1, 5000) i`,
		`INSERT INTO prompts (session_id, id, ordinal, status, content, mode, on_unknown, author, run_id, created_at, started_at, ended_at)
			SELECT id, 'prm_' || id, 1, 'completed', 'x', 'followup', 'hold', '', 'run_' || id, now(), now(), now() FROM sessions`,
		`INSERT INTO runs (id, session_id, prompt_id, generation, outcome, started_at, ended_at, no)
			SELECT 'run_' || id, id, 'prm_' || id, 1, 'completed', now(), now(), 1 FROM sessions`,
		`INSERT INTO sandboxes (session_id, generation, sandbox_id, image_id, status, reserved_at, ended_at)
			SELECT id, 1, 'sb-' || id, 'im-1', 'terminated', now(), now() FROM sessions`,
		`INSERT INTO session_commands (id, session_id, kind, force, status, created_at, ended_at)
			SELECT 'cmd_' || id, id, 'wake', false, 'applied', now(), now() FROM sessions`,
		"VACUUM ANALYZE",
	} {
		_, err := conn.Exec(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	require.NoError(t, conn.Close(t.Context()))

	watcher, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer watcher.Close(context.WithoutCancel(t.Context()))
	// read returns the number of rows that closed connections have read: a server process reports
	// them when it ends.
	read := func() (rows int64) {
		t.Helper()
		require.Eventually(t, func() bool {
			var others int
			require.NoError(t, watcher.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`).Scan(&others))
			return others == 0
		}, waitLimit, 20*time.Millisecond)
		require.NoError(t, watcher.QueryRow(t.Context(), `SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables
			WHERE relname IN ('sessions', 'prompts', 'runs', 'sandboxes', 'session_commands', 'session_labels', 'session_activity', 'questions')`).Scan(&rows))
		return rows
	}
	before := read()
	db, err := postgres.Open(t.Context(), url, postgres.Options{CallTimeout: waitLimit, StatementTimeout: waitLimit})
	require.NoError(t, err)
	const rounds = 20
	for range rounds {
		unclaimed, err := db.Unclaimed(t.Context(), "", time.Second, 200)
		require.NoError(t, err)
		require.Empty(t, unclaimed)
		attended, err := db.Attended(t.Context(), "", time.Second, 200)
		require.NoError(t, err)
		require.Empty(t, attended)
		sandboxes, err := db.SandboxesPage(t.Context(), session.SandboxKey{}, 5000)
		require.NoError(t, err)
		require.Empty(t, sandboxes)
		sandboxes, err = db.SandboxesAbandoned(t.Context(), time.Second, session.SandboxKey{}, 5000)
		require.NoError(t, err)
		require.Empty(t, sandboxes)
		_, err = db.CommandsOverdue(t.Context(), time.Second, 200)
		require.NoError(t, err)
		require.NoError(t, db.SessionCountsFold(t.Context()))
		counts, err := db.SessionCounts(t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, []backlog.Count{
			{Status: session.Hibernated, Agent: "demo", Sessions: 1500}, {Status: session.Terminated, Agent: "demo", Sessions: 3500},
		}, counts)
		unfinished, err := db.Unfinished(t.Context())
		require.NoError(t, err)
		require.Equal(t, backlog.Unfinished{}, unfinished)
	}
	db.Close()
	require.Less(t, read()-before, int64(n), "rows read by %d rounds", rounds)
}
