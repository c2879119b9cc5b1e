package eventlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// waitLimit bounds every wait of a test. Waits are short on an idle machine, but the tests of all
// packages share it.
const waitLimit = 2 * time.Minute

// logBundle is a log over a real Postgres.
type logBundle struct {
	db       *postgres.DB
	url      string
	appender *eventlog.Appender
	follower *eventlog.Follower
}

func setupLog(t *testing.T, o eventlog.FollowerOptions) *logBundle {
	t.Helper()
	url := postgrestest.URL(t)
	b := &logBundle{db: postgrestest.Open(t, url), url: url}
	b.appender = startAppender(t, b.db, eventlog.AppenderOptions{})
	b.follower = eventlog.NewFollower(b.db, o)
	b.follower.Start()
	t.Cleanup(b.follower.Stop)
	return b
}

// testingT is the common interface of tests and properties.
type testingT interface {
	require.TestingT
	Helper()
}

func (b *logBundle) session(t testingT) string {
	t.Helper()
	s, _, err := b.db.SessionCreate(context.Background(), session.Session{
		ID: session.NewID(session.SessionPrefix), Agent: "demo", Lazy: true,
	}, nil, session.Idempotency{})
	require.NoError(t, err)
	return s.ID
}

// run creates a sandbox and a run for the session, whose attempt has the token "t1".
func (b *logBundle) run(t testingT, sessionID string) string {
	t.Helper()
	ctx := context.Background()
	require.NoError(t, b.db.GenerationReserve(ctx, sessionID, 1, "im-1"))
	require.NoError(t, b.db.TransitionRecord(ctx, session.Transition{
		SessionID: sessionID, No: 1, From: session.Initializing, To: session.Running, Event: session.EventReady, Generation: 1, At: time.Now(),
	}))
	p, _, _, err := b.db.PromptSubmit(ctx, session.Prompt{ID: "p1", SessionID: sessionID, Content: "hello"})
	require.NoError(t, err)
	runID := session.NewID(session.RunPrefix)
	v, err := b.db.RunBegin(ctx, sessionID, p.ID, runID, 1)
	require.NoError(t, err)
	require.True(t, v.Granted)
	_, err = b.db.RunAttach(ctx, runID, "t1", run.Dispatch{No: 1, Attempt: 1}, nil)
	require.NoError(t, err)
	return runID
}

func frame(sessionID, runID string, no int64, events int) eventlog.Append {
	a := eventlog.Append{SessionID: sessionID, RunID: runID, Generation: 1, Token: "t1", LastFrame: no, State: fmt.Appendf(nil, "s%d", no)}
	for n := range events {
		a.Events = append(a.Events, eventlog.Draft{
			Type: "text_delta", ConversationID: "main", At: time.Now(), Frame: no, N: n,
			Data: json.RawMessage(fmt.Sprintf(`{"blockId":"b","delta":"%d.%d "}`, no, n)),
		})
	}
	return a
}

// readTo reads to a seq and requires that every event before it arrives once and in order.
func readTo(ctx context.Context, t testingT, r *eventlog.Reader, last int64) []eventlog.Event {
	var out []eventlog.Event
	for next := r.Position() + 1; r.Position() < last; {
		b, err := r.Next(ctx, nil)
		require.NoError(t, err)
		events, err := decode(b)
		require.NoError(t, err)
		for _, e := range events {
			require.Equal(t, next, e.Seq)
			next++
		}
		out = append(out, events...)
	}
	return out
}

// decode returns the events of a batch, whose number must match its positions.
func decode(b eventlog.Batch) ([]eventlog.Event, error) {
	var events []eventlog.Event
	decoder := json.NewDecoder(bytes.NewReader(b.Frames))
	for decoder.More() {
		var e eventlog.Event
		if err := decoder.Decode(&e); err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	if len(events) != b.Len() || len(events) > 0 && (events[0].Seq != b.After+1 || events[len(events)-1].Seq != b.Last) {
		return nil, fmt.Errorf("positions %d to %d with %d events", b.After, b.Last, len(events))
	}
	return events, nil
}

// TestEveryReaderSeesEverySeqOnceInOrder runs concurrent writers that repeat appends and readers
// that disconnect and reconnect, with random parameters.
func TestEveryReaderSeesEverySeqOnceInOrder(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{PageEvents: 7})
	rapid.Check(t, func(t *rapid.T) {
		sessions := rapid.IntRange(1, 4).Draw(t, "sessions")
		frames := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 20).Draw(t, "events per frame")
		repeats := rapid.SliceOfN(rapid.Bool(), len(frames), len(frames)).Draw(t, "answer lost")
		reconnects := rapid.SliceOfN(rapid.IntRange(1, 9), 1, 4).Draw(t, "events between reconnects")
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		total := 0
		for _, n := range frames {
			total += n
		}
		var all sync.WaitGroup
		failures := make(chan error, 100) // more than there are goroutines
		for range sessions {
			id := b.session(t)
			runID := b.run(t, id)
			start, err := b.db.EventsPosition(ctx, id)
			require.NoError(t, err)
			last := start + int64(total)
			all.Go(func() {
				for no, n := range frames {
					a := frame(id, runID, int64(no), n)
					if err := b.appender.Append(ctx, a); err != nil {
						failures <- err
					}
					if repeats[no] {
						if err := b.appender.Append(ctx, a); err != nil {
							failures <- err
						}
					}
				}
			})
			for reader := range 2 {
				all.Go(func() {
					if err := b.readWithReconnects(ctx, id, last, reconnects[reader%len(reconnects)]); err != nil {
						failures <- err
					}
				})
			}
		}
		all.Wait()
		close(failures)
		for err := range failures {
			require.NoError(t, err)
		}
	})
}

func (b *logBundle) readWithReconnects(ctx context.Context, id string, last int64, every int) error {
	position := int64(0)
	for position < last {
		r, err := b.follower.Follow(ctx, id, position)
		if err != nil {
			return err
		}
		for read := 0; read < every && position < last; {
			b, err := r.Next(ctx, nil)
			if err != nil {
				r.Close()
				return fmt.Errorf("at %d of %d: %w", position, last, err)
			}
			events, err := decode(b)
			if err != nil {
				r.Close()
				return err
			}
			for _, e := range events {
				if e.Seq != position+1 {
					r.Close()
					return fmt.Errorf("session %s: seq %d after %d", id, e.Seq, position)
				}
				position = e.Seq
				read++
			}
		}
		r.Close()
	}
	if position != last {
		return fmt.Errorf("session %s: read to %d, the last is %d", id, position, last)
	}
	return nil
}

func TestCaughtUpIsReportedOnce(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{PageEvents: 2})
	id := b.session(t)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	empty, err := b.follower.Follow(ctx, id, 0)
	require.NoError(t, err)
	defer empty.Close()
	got, err := empty.Next(ctx, nil)
	require.NoError(t, err)
	require.Zero(t, got.Len())
	require.True(t, got.CaughtUp)

	runID := b.run(t, id)
	require.NoError(t, b.appender.Append(ctx, frame(id, runID, 0, 3)))
	newest, err := b.appender.Position(ctx, id)
	require.NoError(t, err)
	readTo(ctx, t, empty, newest)
	require.Equal(t, 1, countCaughtUp(ctx, t, b.follower, id, newest-4, newest), "from memory")
	other := eventlog.NewFollower(b.db, eventlog.FollowerOptions{PageEvents: 2})
	defer other.Stop()
	other.Start()
	require.Equal(t, 1, countCaughtUp(ctx, t, other, id, newest-4, newest), "from Postgres, in pages")
	require.Equal(t, 1, countCaughtUp(ctx, t, other, id, newest, newest), "with nothing to read")
}

// countCaughtUp counts the batches up to a position with CaughtUp set; only the last may have it.
func countCaughtUp(ctx context.Context, t *testing.T, f *eventlog.Follower, id string, after, last int64) (n int) {
	t.Helper()
	r, err := f.Follow(ctx, id, after)
	require.NoError(t, err)
	defer r.Close()
	for {
		b, err := r.Next(ctx, nil)
		require.NoError(t, err)
		if b.CaughtUp {
			n++
		}
		if b.CaughtUp {
			require.Equal(t, last, b.Last)
			return n
		}
		require.NotZero(t, b.Len())
	}
}

func TestUnreadablePositions(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	id := b.session(t)
	runID := b.run(t, id)
	require.NoError(t, b.appender.Append(t.Context(), frame(id, runID, 0, 10)))
	newest, err := b.appender.Position(t.Context(), id)
	require.NoError(t, err)

	_, err = b.follower.Follow(t.Context(), id, newest+1)
	var future *eventlog.FuturePositionError
	require.ErrorAs(t, err, &future)
	require.Equal(t, newest, future.Newest)

	slow, err := b.follower.Follow(t.Context(), id, 1)
	require.NoError(t, err)
	defer slow.Close()
	require.NoError(t, b.db.EventsPrune(t.Context(), id, 5))
	_, err = b.follower.Follow(t.Context(), id, 4)
	var gone *eventlog.PositionGoneError
	require.ErrorAs(t, err, &gone)
	require.EqualValues(t, 6, gone.First)
	at, err := b.follower.Follow(t.Context(), id, 5)
	require.NoError(t, err, "everything after this position is still there")
	at.Close()

	_, err = b.follower.Follow(t.Context(), "ses_nobody", 0)
	require.Equal(t, failure.NoSession, failure.CodeOf(err))
}

func TestLostListenConnectionLosesNoEvent(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{Poll: time.Hour}) // only the listener
	id := b.session(t)
	runID := b.run(t, id)
	start, err := b.appender.Position(t.Context(), id)
	require.NoError(t, err)
	r, err := b.follower.Follow(t.Context(), id, start)
	require.NoError(t, err)
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	killer, err := pgx.Connect(ctx, b.url)
	require.NoError(t, err)
	defer killer.Close(context.Background())
	for no := range int64(5) {
		killed := killListener(ctx, t, killer)
		require.NoError(t, b.appender.Append(ctx, frame(id, runID, no, 2)))
		require.NotZero(t, killed)
		readTo(ctx, t, r, start+2*(no+1))
	}
}

// killListener waits for a listening connection and terminates it.
func killListener(ctx context.Context, t *testing.T, conn *pgx.Conn) (pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		var killed bool
		err := conn.QueryRow(ctx, `SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE '%(listen)' AND query LIKE 'LISTEN%'`).Scan(&pid, &killed)
		return err == nil && killed
	}, waitLimit, 5*time.Millisecond)
	return pid
}

// deafSource never receives a notification.
type deafSource struct{ *postgres.DB }

func (deafSource) EventsListen(ctx context.Context, _ func(), _ func([]eventlog.Growth)) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestPollFindsUnnotifiedEvents(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	f := eventlog.NewFollower(deafSource{b.db}, eventlog.FollowerOptions{Poll: 20 * time.Millisecond})
	f.Start()
	defer f.Stop()
	id := b.session(t)
	runID := b.run(t, id)
	start, err := b.appender.Position(t.Context(), id)
	require.NoError(t, err)
	r, err := f.Follow(t.Context(), id, start)
	require.NoError(t, err)
	defer r.Close()
	got, err := r.Next(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, got.CaughtUp)
	require.NoError(t, b.appender.Append(t.Context(), frame(id, runID, 0, 3)))
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	readTo(ctx, t, r, start+3)
}

func TestReadersEndWithTheirFollowerAndWhenClosed(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	id := b.session(t)
	follow := func() *eventlog.Reader {
		r, err := b.follower.Follow(t.Context(), id, 0)
		require.NoError(t, err)
		_, err = r.Next(t.Context(), nil)
		require.NoError(t, err)
		return r
	}
	closed, stopped := follow(), follow()
	ends := make(chan error, 2)
	go func() { _, err := closed.Next(t.Context(), nil); ends <- err }()
	closed.Close()
	closed.Close()
	require.ErrorIs(t, <-ends, eventlog.ErrReaderClosed)
	go func() { _, err := stopped.Next(t.Context(), nil); ends <- err }()
	b.follower.Stop()
	b.follower.Stop()
	b.follower.Start()
	require.ErrorIs(t, <-ends, eventlog.ErrFollowerStopped)
	_, err := b.follower.Follow(t.Context(), id, 0)
	require.ErrorIs(t, err, eventlog.ErrFollowerStopped)
	stopped.Close()

	never := eventlog.NewFollower(b.db, eventlog.FollowerOptions{})
	never.Stop()
	never.Start()
	_, err = never.Follow(t.Context(), id, 0)
	require.ErrorIs(t, err, eventlog.ErrFollowerStopped)
}

func TestReaderGoesWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	id := b.session(t)
	r, err := b.follower.Follow(t.Context(), id, 0)
	require.NoError(t, err)
	defer r.Close()
	_, err = r.Next(t.Context(), nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	ends := make(chan error, 1)
	go func() { _, err := r.Next(ctx, nil); ends <- err }()
	cancel(context.DeadlineExceeded)
	require.ErrorIs(t, <-ends, context.DeadlineExceeded)
}

// TestLostConnectionsLoseNoEvents repeatedly terminates every connection to the database while
// a run is written and read: commits whose responses are lost are repeated, and each event is
// stored once.
func TestLostConnectionsLoseNoEvents(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{PageEvents: 10})
	id := b.session(t)
	runID := b.run(t, id)
	start, err := b.appender.Position(t.Context(), id)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	killer, err := pgx.Connect(ctx, b.url)
	require.NoError(t, err)
	defer killer.Close(context.Background())
	r, err := b.follower.Follow(ctx, id, start)
	require.NoError(t, err)
	defer r.Close()

	const frames, perFrame = 40, 3
	cuts := make(chan struct{}, frames) // the connection is cut during the append
	done := make(chan error, 1)
	go func() {
		defer close(cuts)
		for no := range int64(frames) {
			if no%4 == 0 {
				cuts <- struct{}{}
			}
			if err := b.appender.Append(ctx, frame(id, runID, no, perFrame)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	cut := 0
	read := make(chan []eventlog.Event, 1)
	go func() { read <- readTo(ctx, t, r, start+frames*perFrame) }() //nolint:testifylint // t may fail from here, since the test waits for read
	for range cuts {
		tag, err := killer.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		require.NoError(t, err)
		cut += int(tag.RowsAffected())
	}
	require.NoError(t, <-done)
	require.NotZero(t, cut)
	events := <-read
	require.Len(t, events, frames*perFrame)
	for i, e := range events {
		require.JSONEq(t, string(frame(id, runID, int64(i/perFrame), perFrame).Events[i%perFrame].Data), string(e.Data))
	}
}
