package eventlog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres"
)

// countingSource counts the statements of a follower, and can refuse or delay them.
type countingSource struct {
	*postgres.DB
	reads, bounds, positions atomic.Int64
	mu                       sync.Mutex
	fault                    func(ctx context.Context) error // before a read; nil for none
	notified                 sync.Once
	listens                  chan struct{} // closed when it listens
}

func (s *countingSource) EventsRead(ctx context.Context, pages []*eventlog.Page) error {
	s.reads.Add(1)
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	if fault != nil {
		if err := fault(ctx); err != nil {
			return err
		}
	}
	return s.DB.EventsRead(ctx, pages)
}

func (s *countingSource) EventsBounds(ctx context.Context, id string) (eventlog.Bounds, error) {
	s.bounds.Add(1)
	return s.DB.EventsBounds(ctx, id)
}

func (s *countingSource) EventsPositions(ctx context.Context, ids []string) (map[string]eventlog.Bounds, error) {
	s.positions.Add(1)
	return s.DB.EventsPositions(ctx, ids)
}

func (s *countingSource) setFault(fault func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func (s *countingSource) EventsListen(ctx context.Context, ready func(), changed func([]eventlog.Growth)) error {
	return s.DB.EventsListen(ctx, func() { ready(); s.notified.Do(func() { close(s.listens) }) }, changed)
}

// counted starts a second follower of a log, whose statements are counted, and waits until it
// listens.
func (b *logBundle) counted(t *testing.T, o eventlog.FollowerOptions) (*countingSource, *eventlog.Follower) {
	t.Helper()
	source := &countingSource{DB: b.db, listens: make(chan struct{})}
	f := eventlog.NewFollower(source, o)
	f.Start()
	t.Cleanup(f.Stop)
	select {
	case <-source.listens:
	case <-time.After(waitLimit):
		require.Fail(t, "the follower does not listen")
	}
	return source, f
}

// append writes events that belong to no run.
func (b *logBundle) append(t testingT, n int, ids ...string) {
	t.Helper()
	b.appendData(t, n, `{"text":"0123456789"}`, ids...)
}

// large is the data of an event that no notification has room for.
var large = `{"text":"` + strings.Repeat("0123456789", 1000) + `"}`

func (b *logBundle) appendData(t testingT, n int, data string, ids ...string) {
	t.Helper()
	appends := make([]eventlog.Append, len(ids))
	for i, id := range ids {
		appends[i].SessionID = id
		for range n {
			appends[i].Events = append(appends[i].Events, eventlog.Draft{Type: "x", At: time.Now(), Data: json.RawMessage(data)})
		}
	}
	verdicts, err := b.db.EventsAppend(context.Background(), appends)
	require.NoError(t, err)
	for _, err := range verdicts {
		require.NoError(t, err)
	}
}

func (b *logBundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// openReaders opens readers of the newest events of a session.
func openReaders(ctx context.Context, t *testing.T, b *logBundle, f *eventlog.Follower, id string, n int) []*eventlog.Reader {
	t.Helper()
	newest, err := b.db.EventsPosition(ctx, id)
	require.NoError(t, err)
	readers := make([]*eventlog.Reader, n)
	for i := range readers {
		readers[i], err = f.Follow(ctx, id, newest)
		require.NoError(t, err)
		t.Cleanup(readers[i].Close)
		got, err := readers[i].Next(ctx, nil)
		require.NoError(t, err)
		require.True(t, got.CaughtUp)
	}
	return readers
}

func TestLargeCommitIsReadOnceForAllReaders(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for _, n := range []int{1, 200} {
		source, f := b.counted(t, eventlog.FollowerOptions{Poll: time.Hour})
		id := b.session(t)
		readers := openReaders(ctx, t, b, f, id, n)
		const commits = 20
		for range commits {
			b.appendData(t, 1, large, id)
			for _, r := range readers {
				got, err := r.Next(ctx, nil)
				require.NoError(t, err)
				require.Equal(t, 1, got.Len())
			}
		}
		// The notification of the session's creation may have been late.
		require.LessOrEqual(t, source.reads.Load(), int64(commits+1), "%d readers", n)
		require.EqualValues(t, n, source.bounds.Load(), "one for each reader that came")
		f.Stop()
	}
}

// TestSmallCommitIsNotRead: its events arrive with the notification.
func TestSmallCommitIsNotRead(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	source, f := b.counted(t, eventlog.FollowerOptions{Poll: time.Hour})
	ids := []string{b.session(t), b.session(t), b.session(t)}
	readers := make([]*eventlog.Reader, len(ids))
	for i, id := range ids {
		readers[i] = openReaders(ctx, t, b, f, id, 1)[0]
	}
	const commits = 20
	for range commits {
		b.append(t, 2, ids...)
		for _, r := range readers {
			readTo(ctx, t, r, r.Position()+2)
		}
	}
	require.LessOrEqual(t, source.reads.Load(), int64(len(ids)), "only sessions whose creation was notified late")
	// A reader from the start reads Postgres, and gets the same bytes.
	for i, id := range ids {
		fromMemory, err := f.Follow(ctx, id, readers[i].Position()-4)
		require.NoError(t, err)
		defer fromMemory.Close()
		got, err := fromMemory.Next(ctx, nil)
		require.NoError(t, err)
		frames := string(got.Frames)
		_, other := b.counted(t, eventlog.FollowerOptions{Poll: time.Hour})
		read, err := other.Follow(ctx, id, readers[i].Position()-4)
		require.NoError(t, err)
		defer read.Close()
		got, err = read.Next(ctx, nil)
		require.NoError(t, err)
		require.Equal(t, string(got.Frames), frames)
	}
}

func TestLargeCommitOfManySessionsIsReadWithOneStatement(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	source, f := b.counted(t, eventlog.FollowerOptions{Poll: time.Hour})
	ids := make([]string, 50)
	for i := range ids {
		ids[i] = b.session(t)
	}
	readers := make([]*eventlog.Reader, len(ids))
	for i, id := range ids {
		readers[i] = openReaders(ctx, t, b, f, id, 1)[0]
	}
	before := source.reads.Load()
	const commits = 10
	for range commits {
		b.appendData(t, 2, large[:300]+`"}`, ids...) // the notification has room for some of the sessions
		for _, r := range readers {
			readTo(ctx, t, r, r.Position()+2)
		}
	}
	require.LessOrEqual(t, source.reads.Load()-before, int64(commits+len(ids)), "one for each commit, and for sessions whose creation was notified late")
}

// TestReadersAtRandomPositionsGetEveryEventOnce opens, closes and slows down readers while a
// session is written to, with a tail that constantly overflows.
func TestReadersAtRandomPositionsGetEveryEventOnce(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	source, f := b.counted(t, eventlog.FollowerOptions{
		TailBytes: 3000, MemoryBytes: 6000, KeepBytes: 500, Keep: time.Millisecond, Linger: time.Millisecond,
		Poll: 5 * time.Millisecond, PageEvents: 7, CatchUps: 2, PrefetchBytes: 3 * eventlog.PageBytes,
	})
	ids := []string{b.session(t), b.session(t), b.session(t)}
	const commits, perCommit = 120, 3
	failures := make(chan error, 100) // more than there are goroutines
	var written atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		for range commits {
			b.append(t, perCommit, ids...)
			written.Add(perCommit)
		}
	})
	all.Go(func() { // Postgres responds late, or not at all
		for n := range 10 {
			source.setFault(func(context.Context) error {
				if rand.N(3) == 0 {
					return failure.Errorf(failure.Unavailable, "no connection")
				}
				return nil
			})
			if n == 9 {
				source.setFault(nil)
			}
			for target := written.Load() + 20; written.Load() < min(target, commits*perCommit); {
				pause(ctx, time.Millisecond) // how long the fault lasts
			}
		}
	})
	for i := range 24 {
		id := ids[i%len(ids)]
		all.Go(func() {
			for visits := range 6 {
				position := rand.N(written.Load() + 1)
				until := int64(commits * perCommit)
				if visits < 5 {
					until = min(until, position+rand.N(int64(60)))
				}
				if err := b.visit(ctx, f, id, position, until); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
	require.False(t, f.Prefetching())
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// visit reads from one position to another.
func (b *logBundle) visit(ctx context.Context, f *eventlog.Follower, id string, position, until int64) error {
	r, err := f.Follow(ctx, id, position)
	if err != nil {
		return err
	}
	defer r.Close()
	for position < until {
		got, err := r.Next(ctx, nil)
		if err != nil {
			return fmt.Errorf("at %d: %w", position, err)
		}
		if _, err := decode(got); err != nil {
			return err
		}
		if got.After != position {
			return fmt.Errorf("a batch after %d at %d", got.After, position)
		}
		position = got.Last
		if rand.N(4) == 0 {
			pause(ctx, rand.N(5*time.Millisecond)) // a slow reader
		}
	}
	return nil
}

// TestPruningDuringReading deletes events while they are being read: each reader gets every
// remaining event in order, or a PositionGoneError.
func TestPruningDuringReading(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	_, f := b.counted(t, eventlog.FollowerOptions{TailBytes: 4000, Poll: 5 * time.Millisecond, PageEvents: 5, Linger: -1})
	id := b.session(t)
	b.append(t, 1, id)
	const commits, perCommit = 60, 5
	const last = 1 + commits*perCommit
	failures := make(chan error, 100)
	var gone atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		for n := range int64(commits) {
			b.append(t, perCommit, id)
			if n%3 == 2 {
				if err := b.db.EventsPrune(ctx, id, n*perCommit-rand.N(int64(20))); err != nil {
					failures <- err
				}
			}
		}
	})
	for range 12 {
		all.Go(func() {
			for position := int64(0); position < last; {
				err := b.visit(ctx, f, id, position, last)
				var lost *eventlog.PositionGoneError
				switch {
				case err == nil:
					return
				case errors.As(err, &lost) && lost.First > position:
					gone.Add(1)
					position = lost.First - 1
				default:
					failures <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
	_, err := f.Follow(ctx, id, 0)
	require.ErrorAs(t, err, new(*eventlog.PositionGoneError))
}

func TestPrunedEventsAreNotServedFromMemory(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	_, f := b.counted(t, eventlog.FollowerOptions{Poll: time.Millisecond})
	id := b.session(t)
	r := openReaders(ctx, t, b, f, id, 1)[0]
	b.append(t, 20, id)
	readTo(ctx, t, r, 20)
	before := f.Memory()
	require.NoError(t, b.db.EventsPrune(ctx, id, 10))
	for _, after := range []int64{0, 9} {
		_, err := f.Follow(ctx, id, after)
		require.ErrorAs(t, err, new(*eventlog.PositionGoneError), "at once")
	}
	require.Eventually(t, func() bool { return f.Memory() < before }, waitLimit, time.Millisecond, "it was removed from memory")
	left, err := f.Follow(ctx, id, 10)
	require.NoError(t, err)
	defer left.Close()
	readTo(ctx, t, left, 20)
}

// TestReaderLearnsThatAllNewEventsAreGone deletes new events before the tail is read. No poll helps
// the reader.
func TestReaderLearnsThatAllNewEventsAreGone(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	for name, statement := range map[string]string{
		"purged":  "WITH s AS (UPDATE sessions SET first_seq = last_seq + 1 WHERE id = $1 RETURNING no) DELETE FROM event_log USING s WHERE session_no = s.no",
		"dropped": "DELETE FROM event_log WHERE seq > 5 AND session_no = (SELECT no FROM sessions WHERE id = $1)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
			defer cancel()
			source, f := b.counted(t, eventlog.FollowerOptions{Poll: time.Hour})
			id := b.session(t)
			r := openReaders(ctx, t, b, f, id, 1)[0]
			b.append(t, 5, id)
			readTo(ctx, t, r, 5)
			release := make(chan struct{})
			source.setFault(func(ctx context.Context) error {
				select {
				case <-release:
				case <-ctx.Done():
				}
				return nil
			})
			b.appendData(t, 5, large, id)
			b.exec(t, statement, id)
			close(release)
			got, err := r.Next(ctx, nil)
			if name == "purged" {
				var gone *eventlog.PositionGoneError
				require.ErrorAs(t, err, &gone)
				require.EqualValues(t, 11, gone.First)
				return
			}
			require.NoError(t, err)
			require.Equal(t, eventlog.Batch{After: 5, Last: 10, Dropped: true}, got)
			b.append(t, 1, id)
			readTo(ctx, t, r, 11)
		})
	}
}

// damagedSource cannot read one session.
type damagedSource struct {
	*countingSource
	damaged string
}

func (s *damagedSource) EventsRead(ctx context.Context, pages []*eventlog.Page) error {
	if slices.ContainsFunc(pages, func(p *eventlog.Page) bool { return p.SessionID == s.damaged }) {
		return failure.Errorf(failure.Internal, "a row is damaged")
	}
	return s.countingSource.EventsRead(ctx, pages)
}

// TestSessionThatCannotBeReadFailsAlone writes to sessions that are read with one statement.
func TestSessionThatCannotBeReadFailsAlone(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	ids := []string{b.session(t), b.session(t), b.session(t)}
	source := &damagedSource{countingSource: &countingSource{DB: b.db, listens: make(chan struct{})}, damaged: ids[1]}
	f := eventlog.NewFollower(source, eventlog.FollowerOptions{Poll: time.Hour})
	f.Start()
	t.Cleanup(f.Stop)
	select {
	case <-source.listens:
	case <-ctx.Done():
		require.Fail(t, "the follower does not listen")
	}
	var readers []*eventlog.Reader
	for _, id := range ids {
		readers = append(readers, openReaders(ctx, t, b, f, id, 1)...)
	}
	b.appendData(t, 3, large, ids...)
	for i, r := range readers {
		if ids[i] != source.damaged {
			readTo(ctx, t, r, 3)
			continue
		}
		_, err := r.Next(ctx, nil)
		require.Equal(t, failure.Internal, failure.CodeOf(err), "%v", err)
	}
	// Later events have their own tail.
	later := openReaders(ctx, t, b, f, source.damaged, 1)[0]
	b.append(t, 1, source.damaged)
	readTo(ctx, t, later, 4)
}

// TestDeletedSessionEndsReaders deletes the row: the session is then removed from memory.
func TestDeletedSessionEndsReaders(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	_, f := b.counted(t, eventlog.FollowerOptions{Poll: time.Millisecond})
	id := b.session(t)
	r := openReaders(ctx, t, b, f, id, 1)[0]
	b.append(t, 3, id)
	readTo(ctx, t, r, 3)
	require.NotZero(t, f.Memory())
	b.exec(t, "DELETE FROM sessions WHERE id = $1", id)
	_, err := r.Next(ctx, nil)
	require.Equal(t, failure.NoSession, failure.CodeOf(err))
	require.Zero(t, f.Memory())
	_, err = f.Follow(ctx, id, 3)
	require.Equal(t, failure.NoSession, failure.CodeOf(err))
}

// TestReaderIsWokenByItsTimerWhilePostgresHangs makes a reader wait for a page that never arrives.
func TestReaderIsWokenByItsTimerWhilePostgresHangs(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	source, f := b.counted(t, eventlog.FollowerOptions{})
	id := b.session(t)
	b.append(t, 10, id)
	release := make(chan struct{})
	source.setFault(func(ctx context.Context) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return failure.Errorf(failure.Unavailable, "no answer")
		}
	})
	r, err := f.Follow(ctx, id, 0)
	require.NoError(t, err)
	defer r.Close()
	for range 3 {
		got, err := r.Next(ctx, time.After(time.Millisecond))
		require.NoError(t, err)
		require.Zero(t, got.Len())
		require.False(t, got.CaughtUp)
	}
	close(release)
	readTo(ctx, t, r, 10)
}

// TestReconnectingReadersShareReads restarts a follower with 100 readers, like the
// restart of an api.
func TestReconnectingReadersShareReads(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	id := b.session(t)
	b.append(t, 300, id)
	const readers, catchUps = 100, 2
	source, f := b.counted(t, eventlog.FollowerOptions{Poll: time.Hour, CatchUps: catchUps})
	var all sync.WaitGroup
	failures := make(chan error, readers)
	for range readers {
		all.Go(func() { failures <- b.visit(ctx, f, id, 50, 300) })
	}
	all.Wait()
	for range readers {
		require.NoError(t, <-failures)
	}
	// The notifications of the session and its events may have been late.
	require.LessOrEqual(t, source.reads.Load(), int64(catchUps+2), "all but the first are served from memory")
}

func TestFollowerForgetsSessionsWithoutReaders(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	_, f := b.counted(t, eventlog.FollowerOptions{Linger: time.Millisecond})
	id := b.session(t)
	r := openReaders(ctx, t, b, f, id, 1)[0]
	b.append(t, 3, id)
	readTo(ctx, t, r, 3)
	require.NotZero(t, f.Memory())
	r.Close()
	require.Eventually(t, func() bool { return f.Memory() == 0 && f.Topics() == 0 }, waitLimit, time.Millisecond)
}

// TestMemoryOfManySessionsIsBounded follows more sessions than fit.
func TestMemoryOfManySessionsIsBounded(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	const bound = 100_000
	_, f := b.counted(t, eventlog.FollowerOptions{MemoryBytes: bound})
	ids := make([]string, 40)
	readers := make([]*eventlog.Reader, len(ids))
	for i := range ids {
		ids[i] = b.session(t)
		readers[i] = openReaders(ctx, t, b, f, ids[i], 1)[0]
	}
	for range 10 {
		b.append(t, 10, ids...)
		for _, r := range readers {
			readTo(ctx, t, r, r.Position()+10)
			require.LessOrEqual(t, f.Memory(), bound)
		}
	}
	require.NotZero(t, f.Memory())
}
