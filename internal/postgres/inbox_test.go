package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/question"
)

// fillQuestions inserts 500 questions for each session: of ten, one is open, one has expired, two
// are cancelled, and six are answered, three of these by a policy.
const fillQuestions = `
WITH s AS (
    INSERT INTO sessions (id, status, agent, title, lazy, created_at, last_activity_at, idle_timeout_ns, metadata, options)
    SELECT 'ses_' || md5(i::text), 'hibernated', 'demo', '', true, now(), now(), 900000000000, '{}', '{}' FROM generate_series(1, $1::int / 500) i
    RETURNING id
), p AS (
    INSERT INTO prompts (session_id, id, ordinal, status, content, mode, on_unknown, author, run_id, created_at, started_at, ended_at)
    SELECT id, 'p', 1, 'completed', 'hello', 'followup', 'hold', '', 'run_' || substr(id, 5), now(), now(), now() FROM s
    RETURNING session_id
), r AS (
    INSERT INTO runs (id, no, session_id, prompt_id, generation, outcome, started_at, ended_at)
    SELECT 'run_' || substr(session_id, 5), 1, session_id, 'p', 1, 'completed', now(), now() FROM p
    RETURNING id, session_id
)
INSERT INTO questions (id, session_id, run_id, agent_id, asked, status, answer, reason, created_at, expires_at, resolved_at)
SELECT 'que_' || md5(r.id || i), r.session_id, r.id, i, '{"id":"q","kind":"question","toolName":"Ask","toolUseId":"u","title":"Which?"}', k.status,
    CASE WHEN k.status = 'answered' THEN '{"decision":"once"}'::json END, CASE WHEN i % 10 IN (1, 2, 3) THEN 'policy' ELSE '' END,
    now(), now() + interval '1 day', CASE WHEN k.status <> 'open' THEN now() END
FROM r, generate_series(0, 499) i, LATERAL (SELECT (ARRAY['open', 'answered', 'answered', 'answered', 'answered', 'answered', 'answered', 'expired', 'cancelled', 'cancelled'])[1 + i % 10] AS status) k`

// TestInboxIsReadByIndex checks that a page reads only the rows that it shows, of 100,000
// questions of 200 sessions.
func TestInboxIsReadByIndex(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sql(t, fillQuestions, 100_000)
	b.sql(t, "ANALYZE questions")
	db, err := postgres.Open(b.ctx, b.url, postgres.Options{MaxConns: 1})
	require.NoError(t, err)
	before := scansOf(t, b)

	const pages, limit = 20, 50 // enough for a generic plan
	reads := 0
	for _, status := range []question.Status{question.Open, question.Answered, question.Expired, question.Cancelled, ""} {
		cursor := ""
		for page := range pages {
			items, next, err := db.QuestionInbox(b.ctx, status, limit, cursor)
			require.NoError(t, err)
			require.Len(t, items, limit, "page %d of %q", page, status)
			cursor = next
			reads++
		}
	}
	db.Close() // a connection reports its last statistics when it ends

	var after scans
	require.Eventually(t, func() bool {
		after = scansOf(t, b)
		return after.index-before.index >= int64(reads)
	}, time.Minute, 50*time.Millisecond)
	require.Equal(t, before.sequential, after.sequential, "the whole table is never read")
	// Each shown row is found by its status and then again by its id, with a few of the next
	// status.
	require.LessOrEqual(t, after.rows-before.rows, int64(3*reads*(limit+1)), "rows read for %d pages", reads)
}

// scans counts the sequential scans and index scans of a table, and the rows that indexes fetched.
type scans struct{ sequential, index, rows int64 }

func scansOf(t *testing.T, b *harness) (s scans) {
	t.Helper()
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer conn.Close(b.ctx)
	err = conn.QueryRow(b.ctx, "SELECT seq_scan, idx_scan, idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'questions'").Scan(&s.sequential, &s.index, &s.rows)
	require.NoError(t, err)
	return s
}
