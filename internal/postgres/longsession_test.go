package postgres_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// longHistory is the number of turns of a long session.
const longHistory = 1000

// TestTurnsOfLongSessionReadFewRows counts the rows and index entries that Postgres reads for
// turns and for a hibernation of a session with many turns. The statistics are those of sessions with
// one prompt each, or of the session itself, and statements were first planned without any. Several
// indexes begin with the session; a plan must not read the whole history of the session in one.
func TestTurnsOfLongSessionReadFewRows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		others  int // sessions with one prompt each
		planned int // the turns of the session when its statements are planned
	}{
		{"alone, planned without turns", 0, 0},
		{"alone, planned with some turns", 0, 130},
		{"among sessions with one prompt each", 300, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.attended(t)
			s := &longSession{harness: b, attendant: "a1"}
			s.turn(t, b.DB)
			b.sql(t, `INSERT INTO sessions SELECT (jsonb_populate_record(s, jsonb_build_object('id', s.id || n, 'no', s.no + n))).* FROM sessions s, generate_series(1, $1) n`, c.others)
			s.copies(t, "o", 1, c.others, `'session_id', x.session_id || n`)
			s.copies(t, "", 1, c.planned, "")
			if c.others > 0 {
				b.sql(t, "ANALYZE")
			}
			const turns = 20
			few(t, "turns", turns*longHistory/2, b.reads(t, func(db *postgres.DB) {
				s.turn(t, db)
				s.copies(t, "", c.planned+1, longHistory, "")
				if c.others == 0 {
					b.sql(t, "ANALYZE")
				}
				for range turns - 1 {
					s.turn(t, db)
				}
			}))
			few(t, "a hibernation", longHistory/2, b.reads(t, func(db *postgres.DB) { s.hibernate(t, db, "im-1") }))
			few(t, "reads", longHistory/2, b.reads(t, func(db *postgres.DB) {
				_, err := db.SessionGet(b.ctx, b.id)
				require.NoError(t, err)
			}))
		})
	}
}

// longSession is a session with an attendant.
type longSession struct {
	*harness
	attendant string
	turns     int
	promptID  string // of its first turn
	runID     string // of its first turn
}

// turn runs a prompt.
func (s *longSession) turn(t *testing.T, db *postgres.DB) {
	t.Helper()
	s.turns++
	_, _, _, err := db.PromptSubmit(s.ctx, session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: s.id, Content: "hello"})
	require.NoError(t, err)
	claimed, err := db.RunClaim(s.ctx, run.Claim{
		SessionID: s.id, Attendant: s.attendant, Generation: 1, RunID: session.NewID(session.RunPrefix), Token: "c1", Attempt: 1,
	})
	require.NoError(t, err)
	require.NotNil(t, claimed.Start)
	runID := claimed.Start.Run.ID
	if s.turns == 1 {
		s.promptID, s.runID = claimed.Start.Prompt.ID, runID
	}
	verdicts, err := db.EventsTryAppend(s.ctx, []eventlog.Append{{
		SessionID: s.id, RunID: runID, Generation: 1, Token: "c1", LastFrame: 0, State: []byte("{}"),
		Events: []eventlog.Draft{draft("block_start", 0, 0, fmt.Sprintf(`{"block":{"id":"new%d","type":"assistant_text","status":"streaming"}}`, s.turns))},
	}})
	require.NoError(t, err)
	require.Equal(t, []error{nil}, verdicts)
	_, err = db.PromptGet(s.ctx, s.id, claimed.Start.Prompt.ID)
	require.NoError(t, err)
	s.attendant = fmt.Sprint("next", s.turns)
	line := []byte("line\n")
	ended, err := db.RunEnd(s.ctx, run.Ending{
		RunID: runID, Token: "c1", Outcome: session.OutcomeCompleted, RecheckFor: "w1", Attend: s.attendant,
		Segments: []transcript.Segment{{
			SessionID: s.id, RunID: runID, Path: "a.jsonl", Version: 1, Offset: int64((s.turns - 1) * len(line)), Data: line,
		}},
	})
	require.NoError(t, err)
	require.True(t, ended.Attended)
}

// hibernate stores a bundle.
func (s *longSession) hibernate(t *testing.T, db *postgres.DB, snapshotID string) {
	t.Helper()
	_, found, err := db.SandboxUnsaved(s.ctx, s.id)
	require.NoError(t, err)
	require.True(t, found)
	require.NoError(t, db.SnapshotRecord(s.ctx, s.id, 1, snapshotID))
	require.NoError(t, db.BundleCommit(s.ctx, bundle.Bundle{
		ID: session.NewID(session.BundlePrefix), SessionID: s.id, Generation: 1, SnapshotID: snapshotID, Verified: true,
	}))
}

// few fails if a single statement of each turn, or of the hibernation, has read the history. Some
// entries are read anyway, as those of old versions of rows that are not vacuumed yet.
func few(t *testing.T, what string, most int64, reads map[string]int64) {
	t.Helper()
	var sum int64
	for _, n := range reads {
		sum += n
	}
	if sum >= most {
		t.Errorf("%s read %d rows and index entries, which should be fewer than %d: %v", what, sum, most, reads)
	}
}

// copies inserts copies of the first turn for each n from first to last, with changes of every row.
// They are older than all others, and their ids contain the mark.
func (s *longSession) copies(t *testing.T, mark string, first, last int, changes string) {
	t.Helper()
	for _, row := range []struct{ table, key, id, changes string }{
		{"prompts", "id", s.promptID, `'id', x.id || $5::text || n, 'ordinal', 1000000 + n, 'allotted_run_id', ''`},
		{"runs", "id", s.runID, `'id', x.id || $5::text || n, 'no', n - 1000000, 'prompt_id', x.prompt_id || $5::text || n`},
		{"blocks", "block_id", "new1", `'block_id', x.block_id || $5::text || n, 'position', n - 1000000`},
	} {
		if changes != "" {
			row.changes = changes + ", " + row.changes
		}
		s.sql(t, fmt.Sprintf(`INSERT INTO %s SELECT (jsonb_populate_record(x, jsonb_build_object(%s))).* FROM %[1]s x, generate_series($3::int, $4) n WHERE x.session_id = $1 AND x.%[3]s = $2`,
			row.table, row.changes, row.key), s.id, row.id, first, last, mark)
	}
}

// reads returns how many rows and index entries Postgres reads while do uses a new connection, by
// index, or by table for scans of whole tables.
func (b *harness) reads(t *testing.T, do func(*postgres.DB)) map[string]int64 {
	t.Helper()
	before := b.totalReads(t)
	u, err := url.Parse(b.url)
	require.NoError(t, err)
	query := u.Query()
	query.Set("application_name", "long session")
	u.RawQuery = query.Encode()
	db, err := postgres.Open(b.ctx, u.String(), postgres.Options{MaxConns: 1})
	require.NoError(t, err)
	do(db)
	db.Close()
	reads := b.totalReads(t)
	for of, n := range before {
		if reads[of] -= n; reads[of] == 0 {
			delete(reads, of)
		}
	}
	return reads
}

// counted returns a connection on which the counters of the database are complete: no connection that
// satisfies a condition is left. The server adds what a connection has read and changed when it ends.
func (b *harness) counted(t *testing.T, condition string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var open int
		err := conn.QueryRow(b.ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND "+condition).Scan(&open)
		return err == nil && open == 0
	}, waitLimit, 10*time.Millisecond)
	return conn
}

// totalReads returns what connections of reads have read.
func (b *harness) totalReads(t *testing.T) map[string]int64 {
	t.Helper()
	conn := b.counted(t, "application_name LIKE 'long session%'") // also the one for notifications
	defer conn.Close(b.ctx)
	rows, err := conn.Query(b.ctx, "SELECT indexrelname, idx_tup_read FROM pg_stat_user_indexes UNION ALL SELECT relname, seq_tup_read FROM pg_stat_user_tables")
	require.NoError(t, err)
	reads := map[string]int64{}
	var of string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&of, &n}, func() error {
		reads[of] += n
		return nil
	})
	require.NoError(t, err)
	return reads
}
