package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
)

// TestSessionsAreNumberedInOnePass checks that the migrations that number sessions and copy their
// events read a page of sessions at a time, and read each session a constant number of times.
func TestSessionsAreNumberedInOnePass(t *testing.T) {
	t.Parallel()
	const sessions = 20_000
	url := postgrestest.FileURL(t, "testdata/schema6.sql")
	db := postgrestest.Open(t, url)
	require.NoError(t, db.MigrateTo(t.Context(), 81))
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	exec := func(statement string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	exec(fmt.Sprintf(`INSERT INTO sessions (id, status, agent, title, lazy, created_at, last_activity_at, idle_timeout_ns, metadata, options)
		SELECT 'ses_' || md5(i::text), 'hibernated', 'demo', repeat('a title of some length ', 3), true, now(), now(), 900000000000, '{}', '{}' FROM generate_series(1, %d) i`, sessions))
	exec("VACUUM ANALYZE sessions")
	require.NoError(t, db.MigrateTo(t.Context(), 82))
	// read returns the number of session rows that this connection and closed ones have read: a
	// server process reports them when it ends.
	read := func() (rows int) {
		t.Helper()
		require.Eventually(t, func() bool {
			var others int
			require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`).Scan(&others))
			return others == 0
		}, waitLimit, 20*time.Millisecond)
		exec("SELECT pg_stat_force_next_flush()")
		require.NoError(t, conn.QueryRow(t.Context(),
			"SELECT (seq_tup_read + coalesce(idx_tup_fetch, 0))::int FROM pg_stat_user_tables WHERE relname = 'sessions'").Scan(&rows))
		return rows
	}
	before := read()
	exec("CALL event_log_number()")
	require.Less(t, read()-before, 10*sessions)
	require.Zero(t, query[int](t.Context(), t, url, "SELECT count(*)::int FROM sessions WHERE no IS NULL"))

	// Numbered sessions keep their number when an interrupted migration is run again.
	exec("UPDATE sessions SET no = NULL WHERE no > 1500")
	exec("UPDATE event_log_copied SET numbered = 1500")
	exec("CALL event_log_number()")
	require.Equal(t, 1, query[int](t.Context(), t, url, "SELECT count(*)::int FROM event_log_copied WHERE numbered = upto"))
	require.Equal(t, query[int](t.Context(), t, url, "SELECT upto::int FROM event_log_copied"),
		query[int](t.Context(), t, url, "SELECT count(DISTINCT no)::int FROM sessions WHERE no BETWEEN 1 AND (SELECT upto FROM event_log_copied)"))

	// The factor is 7 with an index on the numbers and its statistics, 16 without the statistics,
	// and 65 without both. It is 12 if autovacuum runs in between: a piece is a twentieth of these
	// few sessions, so that the custom plans of the first five pieces may read the whole table.
	exec("ALTER TABLE events DISABLE TRIGGER events_mirror")
	exec(`INSERT INTO events (session_id, seq, run_id, conversation_id, type, at, data)
		SELECT id, last_seq + i, '', 'main', 'error', now(), '{}' FROM sessions, generate_series(1, 2) i`)
	exec("ALTER TABLE events ENABLE TRIGGER events_mirror")
	exec("UPDATE sessions SET last_seq = last_seq + 2")
	exec("VACUUM ANALYZE events")
	before = read()
	require.NoError(t, db.MigrateTo(t.Context(), 83))
	require.Less(t, read()-before, 14*sessions)
	require.Zero(t, query[int](t.Context(), t, url, "SELECT ((SELECT count(*) FROM events) - (SELECT count(*) FROM event_log))::int"))
	require.NoError(t, db.Migrate(t.Context()))
}
