package postgres_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestConcurrentlyRepeatedFrameIsWrittenOnce has two processes append the same frames in
// batches of different sizes, and a third one with an old token, while connections are terminated
// at random, within transactions and between commit and response.
func TestConcurrentlyRepeatedFrameIsWrittenOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "1"))
	before := b.position(t)
	const frames = 60
	var writers errgroup.Group
	for w, size := range []int64{1, 3, 7, 7} {
		db := b.open(t, postgres.Options{MaxConns: 2, CallTimeout: waitLimit})
		token := "t1"
		if w == 3 {
			token = "t0"
		}
		writers.Go(func() error {
			for from := int64(0); from < frames; {
				a := eventlog.Append{SessionID: b.id, RunID: run, Generation: 1, Token: token, LastFrame: min(from+size, frames) - 1}
				for f := from; f <= a.LastFrame; f++ {
					a.Events = append(a.Events, draft("error", f, 0, fmt.Sprintf(`{"f":%d}`, f)), draft("error", f, 1, fmt.Sprintf(`{"f":%d,"n":1}`, f)))
				}
				verdicts, err := db.EventsAppend(b.ctx, []eventlog.Append{a, a})
				switch {
				case failure.CodeOf(err) == failure.Unavailable:
					continue // the response is lost, and possibly the commit
				case err != nil:
					return err
				case verdicts[0] == nil && token == "t1", verdicts[0] == eventlog.ErrFenced && token == "t0": //nolint:errorlint // it is returned unwrapped
					from += size
				default:
					return fmt.Errorf("frames from %d with token %s: %w", from, token, verdicts[0])
				}
			}
			return nil
		})
	}
	stop := b.terminateConnections(t)
	err := writers.Wait()
	stop()
	require.NoError(t, err)

	events := b.events(t)[before:]
	require.Len(t, events, 2*frames)
	for f := range frames {
		require.JSONEq(t, fmt.Sprintf(`{"f":%d}`, f), string(events[2*f].Data))
		require.JSONEq(t, fmt.Sprintf(`{"f":%d,"n":1}`, f), string(events[2*f+1].Data))
		require.Equal(t, run, events[2*f].RunID)
	}
}

// terminateConnections ends connections that are in a statement or a transaction, one after the
// other, until stop is called. The random pauses in between, of up to 10 ms at first, let some
// statements complete: otherwise a fast machine would never get past the first one. They grow, so
// that operations with many statements eventually succeed on any machine. After stop, b has new
// connections: an old one may already be idle in its pool when it is terminated.
func (b *harness) terminateConnections(t *testing.T) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var group errgroup.Group
	group.Go(func() error {
		conn, err := pgx.Connect(b.ctx, b.url)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(b.ctx))
		for n := 0; ; n++ {
			select {
			case <-done:
				return nil
			default:
			}
			_, err := conn.Exec(b.ctx, `WITH pause AS MATERIALIZED (SELECT pg_sleep(random() * 0.01 * (1 + $1 / 50))) SELECT pg_terminate_backend(pid) FROM pause, (
				SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle' ORDER BY random() LIMIT 1) a`, n)
			if err != nil {
				return err
			}
		}
	})
	return func() {
		t.Helper()
		close(done)
		require.NoError(t, group.Wait())
		b.DB = postgrestest.Open(t, b.url)
	}
}

// TestEventsWithoutTheirOwnPlaceAreRefused checks events that could be written twice: two in one
// place, or one after the last frame.
func TestEventsWithoutTheirOwnPlaceAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "1"))
	before := b.position(t)
	for name, events := range map[string][]eventlog.Draft{
		"same place":       {draft("error", 0, 0, `{}`), draft("error", 0, 0, `{}`)},
		"backwards":        {draft("error", 1, 0, `{}`), draft("error", 0, 0, `{}`)},
		"after the commit": {draft("error", 3, 0, `{}`)},
		"no frame":         {draft("error", -1, 0, `{}`)},
	} {
		err := b.appendOne(t, eventlog.Append{SessionID: b.id, RunID: run, Generation: 1, Token: "t1", LastFrame: 2, Events: events})
		requireCode(t, failure.Invalid, err)
		require.Equal(t, before, b.position(t), name)
	}
}

func TestEventsKeepTheirRunAndConversation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	other := b.session(t)
	var want []string
	for turn := range 3 {
		runID := b.begin(t, b.submit(t, "x"))
		a := eventlog.Append{SessionID: b.id, RunID: runID, Generation: 1, Token: "t1"}
		for n, conversation := range []string{"main", "toolu_1", "", fmt.Sprintf("toolu_%d", turn+2), "toolu_1"} {
			d := draft("error", 0, n, `{}`)
			d.ConversationID = conversation
			a.Events = append(a.Events, d)
			want = append(want, runID+" "+conversation)
		}
		verdicts, err := b.EventsAppend(b.ctx, []eventlog.Append{a, {SessionID: other, Events: []eventlog.Draft{{Type: "error", ConversationID: "toolu_2", Data: []byte(`{}`)}}}})
		require.NoError(t, err)
		require.Equal(t, []error{nil, nil}, verdicts)
		_, err = b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted})
		require.NoError(t, err)
	}
	var got []string
	for _, e := range b.events(t) {
		if e.Type == "error" {
			got = append(got, e.RunID+" "+e.ConversationID)
		}
	}
	require.Equal(t, want, got)
	b.id = other
	for _, e := range b.events(t)[1:] {
		require.Equal(t, "toolu_2", e.ConversationID)
		require.Empty(t, e.RunID)
	}
	require.Equal(t, 1, query[int](b.ctx, t, b.url, "SELECT count(*)::int FROM event_conversations c JOIN sessions s ON s.no = c.session_no WHERE s.id = '"+other+"'"))
}

// eventsAsText returns every event of a database, with the columns of earlier releases.
const eventsAsText = `SELECT coalesce(string_agg(concat_ws(' ', session_id, seq, type, conversation_id, run_id, at, data::text), E'\n' ORDER BY session_id, seq), '') FROM events`

// TestEventsAreMovedWhilePreviousReleaseWrites interrupts the copy while processes of the previous
// release, which only know the old table, write before, between and after its pieces.
func TestEventsAreMovedWhilePreviousReleaseWrites(t *testing.T) {
	t.Parallel()
	url := postgrestest.FileURL(t, "testdata/schema6.sql")
	b := &harness{DB: postgrestest.Open(t, url), url: url, ctx: t.Context()}
	upTo(t, url, 82)

	id := func(n int) string { return fmt.Sprintf("ses_%032x", n) }
	// write writes events like the previous release, including its last transaction.
	write := func(sessionID, conversation, run string, events int) {
		t.Helper()
		conn, err := pgx.Connect(b.ctx, url)
		require.NoError(t, err)
		defer conn.Close(b.ctx)
		err = pgx.BeginFunc(b.ctx, conn, func(tx pgx.Tx) error {
			var last int64
			if err := tx.QueryRow(b.ctx, "SELECT last_seq FROM sessions WHERE id = $1 FOR NO KEY UPDATE", sessionID).Scan(&last); err != nil {
				return err
			}
			if _, err := tx.Exec(b.ctx, "UPDATE sessions SET last_seq = last_seq + $2 WHERE id = $1", sessionID, events); err != nil {
				return err
			}
			_, err := tx.Exec(b.ctx, `INSERT INTO events (session_id, seq, type, conversation_id, run_id, frame, n, at, data, size)
				SELECT $1, $2 + g, 'error', $3, $4, CASE WHEN $4 <> '' THEN 1000 + $2 + g END, CASE WHEN $4 <> '' THEN 0 END, now(), '{"escape": "\u0000"}', 20 FROM generate_series(1, $5::int) g`,
				sessionID, last, conversation, run, events)
			return err
		})
		require.NoError(t, err)
	}
	run := fmt.Sprintf("run_%030x02", 2) // the run of session 2, which is running
	write(id(1), "main", "", 60_000)     // fills a piece by itself
	write(id(2), "toolu_1", run, 2)
	b.sql(t, `INSERT INTO sessions (id, status, agent, lazy, created_at, last_activity_at, idle_timeout_ns, metadata, options)
		VALUES ('ses_00', 'initializing', 'demo', true, now(), now(), 1, '{}', '{}')`) // inserted during the copy, before all ids
	write("ses_00", "main", "", 3)

	// Another transaction has locked a session of the second piece.
	holder, err := pgx.Connect(b.ctx, url)
	require.NoError(t, err)
	defer holder.Close(context.WithoutCancel(b.ctx))
	_, err = holder.Exec(b.ctx, "BEGIN; SELECT FROM sessions WHERE id = '"+id(5)+"' FOR UPDATE")
	require.NoError(t, err)
	conn, err := pgx.Connect(b.ctx, url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(b.ctx))
	_, err = conn.Exec(b.ctx, "SET lock_timeout = '50ms'")
	require.NoError(t, err)
	_, err = conn.Exec(b.ctx, "CALL event_log_number()")
	require.ErrorContains(t, err, "lock timeout") // no session is numbered partly
	require.Zero(t, query[int](b.ctx, t, url, "SELECT numbered::int FROM event_log_copied"))
	_, err = holder.Exec(b.ctx, "COMMIT")
	require.NoError(t, err)
	for range 2 {
		_, err = conn.Exec(b.ctx, "CALL event_log_number()")
		require.NoError(t, err)
	}
	_, err = holder.Exec(b.ctx, "BEGIN; SELECT FROM sessions WHERE id = '"+id(5)+"' FOR UPDATE")
	require.NoError(t, err)
	_, err = conn.Exec(b.ctx, "CALL event_log_copy()")
	require.ErrorContains(t, err, "lock timeout")
	require.Equal(t, 1, query[int](b.ctx, t, url, "SELECT count(*)::int FROM sessions, event_log_copied WHERE no <= through"), "the first piece is kept")
	write(id(1), "main", "", 2)     // after it was copied
	write(id(2), "toolu_2", run, 2) // before it is copied
	_, err = holder.Exec(b.ctx, "COMMIT")
	require.NoError(t, err)

	want := query[string](b.ctx, t, url, eventsAsText)
	require.NoError(t, b.Migrate(b.ctx))
	require.NoError(t, b.SchemaCheck(b.ctx))
	require.Equal(t, want, query[string](b.ctx, t, url, eventsAsText))

	write(id(2), "toolu_3", run, 2) // a process of the previous release that is still running
	write(id(2), "main", "", 1)
	b.id = id(2)
	events := b.events(t)
	events = events[len(events)-7:]
	var got []string
	for _, e := range events {
		require.JSONEq(t, `{"escape": "\u0000"}`, string(e.Data))
		got = append(got, e.ConversationID+" "+e.RunID)
	}
	require.Equal(t, []string{"toolu_1 " + run, "toolu_1 " + run, "toolu_2 " + run, "toolu_2 " + run, "toolu_3 " + run, "toolu_3 " + run, "main "}, got)
	require.Equal(t, query[string](b.ctx, t, url, "SELECT string_agg(concat_ws(' ', session_id, no), ',' ORDER BY session_id, no) FROM runs"),
		query[string](b.ctx, t, url, "SELECT string_agg(concat_ws(' ', session_id, row_number), ',' ORDER BY session_id, row_number) FROM (SELECT session_id, row_number() OVER (PARTITION BY session_id) FROM runs) r"))
}

// upTo migrates a database to a version of the schema.
func upTo(t *testing.T, url string, version int64) {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	files, err := fs.Sub(os.DirFS("."), "migrations")
	require.NoError(t, err)
	conn := stdlib.OpenDB(*config)
	defer conn.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, conn, files, goose.WithDisableGlobalRegistry(true))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	_, err = p.UpTo(ctx, version)
	require.NoError(t, err)
}
