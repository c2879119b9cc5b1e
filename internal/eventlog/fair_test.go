package eventlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// lock locks the row of a session until release is called.
func (b *logBundle) lock(t *testing.T, id string) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), b.url)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "BEGIN")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "SELECT FROM sessions WHERE id = $1 FOR UPDATE", id)
	require.NoError(t, err)
	release = sync.OnceFunc(func() { require.NoError(t, conn.Close(context.Background())) })
	t.Cleanup(release)
	return release
}

func TestLockedSessionDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	const others, frames = 4, 20
	stuck := b.session(t)
	stuckRun := b.run(t, stuck)
	position, err := b.db.EventsPosition(ctx, stuck)
	require.NoError(t, err)
	release := b.lock(t, stuck)

	var late, all sync.WaitGroup
	late.Go(func() {
		for no := range int64(frames) {
			require.NoError(t, b.appender.Append(ctx, frame(stuck, stuckRun, no, 2)))
		}
	})
	for range others {
		id := b.session(t)
		runID := b.run(t, id)
		all.Go(func() {
			for no := range int64(frames) {
				require.NoError(t, b.appender.Append(ctx, frame(id, runID, no, 2)))
				_, _, _, err := b.db.PromptSubmit(ctx, session.Prompt{ID: "x" + strconv.FormatInt(no, 10), SessionID: id, Content: "hello"})
				require.NoError(t, err)
			}
		})
	}
	all.Wait() // while the row is locked
	now, err := b.db.EventsPosition(ctx, stuck)
	require.NoError(t, err)
	require.Equal(t, position, now)
	release()
	late.Wait()
	r, err := b.follower.Follow(ctx, stuck, position)
	require.NoError(t, err)
	defer r.Close()
	events := readTo(ctx, t, r, position+2*frames)
	for i, e := range events {
		require.JSONEq(t, string(frame(stuck, stuckRun, int64(i/2), 2).Events[i%2].Data), string(e.Data), "in order")
	}
}

// TestRepeatedlyLockedSessionIsAppendedTo has two transactions alternately lock its row
// without a pause: attempts that do not wait for the lock would never succeed.
func TestRepeatedlyLockedSessionIsAppendedTo(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	id := b.session(t)
	runID := b.run(t, id)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	contending, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			conn, err := pgx.Connect(ctx, b.url)
			require.NoError(t, err)
			defer conn.Close(context.Background())
			for contending.Err() == nil {
				_, err := conn.Exec(ctx, "SELECT pg_sleep(0.02) FROM (SELECT FROM sessions WHERE id = '"+id+"' FOR UPDATE) s")
				require.NoError(t, err)
			}
		})
	}
	for no := range int64(10) {
		require.NoError(t, b.appender.Append(ctx, frame(id, runID, no, 1)))
	}
	stop()
	all.Wait()
}

func TestAppendToNoSessionFails(t *testing.T) {
	t.Parallel()
	b := setupLog(t, eventlog.FollowerOptions{})
	err := b.appender.Append(t.Context(), add("ses_none"))
	require.Equal(t, failure.NoSession, failure.CodeOf(err), "%v", err)
}

// appendAll appends once to each of n sessions and returns how long the slowest took.
func appendAll(t *testing.T, a *eventlog.Appender, n int) time.Duration {
	t.Helper()
	begin := time.Now()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { require.NoError(t, a.Append(t.Context(), add("ses_"+strconv.Itoa(i)))) })
	}
	all.Wait()
	return time.Since(begin)
}

func has(batch []eventlog.Append, id string) bool {
	for _, a := range batch {
		if a.SessionID == id {
			return true
		}
	}
	return false
}

func TestHangingCommitDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		hangs.Store(true)
		s := &scriptedStore{answer: func(_ int, b []eventlog.Append) ([]error, error) {
			if hangs.Load() && has(b, "ses_stuck") {
				time.Sleep(10 * time.Second) // in the bubble: until the deadline of the call
				return nil, failure.Errorf(failure.Unavailable, "no answer")
			}
			time.Sleep(time.Millisecond)
			return make([]error, len(b)), nil
		}}
		a := startAppender(t, s, eventlog.AppenderOptions{})
		var stuck sync.WaitGroup
		stuck.Go(func() { require.NoError(t, a.Append(t.Context(), add("ses_stuck"))) })
		synctest.Wait()
		for range 50 {
			require.Less(t, appendAll(t, a, 20), time.Second)
		}
		time.Sleep(time.Hour) // in the bubble
		for range 50 {
			require.Less(t, appendAll(t, a, 20), time.Second)
		}
		hangs.Store(false)
		stuck.Wait()
		a.Stop(t.Context())
	})
}

func TestSessionsOfStuckCommitAreSplit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scriptedStore{answer: func(n int, b []eventlog.Append) ([]error, error) {
			switch {
			case n == 1:
				time.Sleep(50 * time.Millisecond) // so that the next commit has all of them
			case has(b, "ses_stuck"):
				time.Sleep(10 * time.Second)
				return nil, failure.Errorf(failure.Unavailable, "no answer")
			}
			return make([]error, len(b)), nil
		}}
		a := startAppender(t, s, eventlog.AppenderOptions{})
		var all, stuck sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		all.Go(func() { require.NoError(t, a.Append(t.Context(), add("ses_first"))) })
		synctest.Wait()
		stuck.Go(func() { require.ErrorIs(t, a.Append(ctx, add("ses_stuck")), context.Canceled) })
		begin := time.Now()
		for i := range 31 {
			all.Go(func() { require.NoError(t, a.Append(t.Context(), add("ses_"+strconv.Itoa(i)))) })
		}
		all.Wait()
		require.Less(t, time.Since(begin), time.Minute, "halved until the stuck one is alone")
		cancel()
		stuck.Wait()
		a.Stop(t.Context())
	})
}

func TestFloodingSessionGetsFairShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scriptedStore{answer: func(_ int, b []eventlog.Append) ([]error, error) {
			time.Sleep(time.Millisecond)
			return make([]error, len(b)), nil
		}}
		a := startAppender(t, s, eventlog.AppenderOptions{MaxBatch: 10, MaxQueued: 100})
		var flood sync.WaitGroup
		for range 500 {
			flood.Go(func() { require.NoError(t, a.Append(t.Context(), add("ses_flood"))) })
		}
		synctest.Wait()
		require.LessOrEqual(t, appendAll(t, a, 9), 10*time.Millisecond, "the next commit has one of each")
		flood.Wait()
		a.Stop(t.Context())
	})
}

func TestCommitsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scriptedStore{answer: func(_ int, b []eventlog.Append) ([]error, error) {
			time.Sleep(10 * time.Millisecond)
			return make([]error, len(b)), nil
		}}
		a := startAppender(t, s, eventlog.AppenderOptions{MaxBytes: 1 << 20, MaxQueuedBytes: 2 << 20})
		large := func(id string, n int) eventlog.Append {
			return eventlog.Append{SessionID: id, Events: []eventlog.Draft{{Data: json.RawMessage(bytes.Repeat([]byte{'1'}, n))}}}
		}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() { require.NoError(t, a.Append(t.Context(), large("ses_"+strconv.Itoa(i%4), 300<<10))) })
		}
		all.Go(func() { require.NoError(t, a.Append(t.Context(), large("ses_big", 5<<20))) })
		all.Wait()
		for _, batch := range s.batches {
			bytes := 0
			for _, one := range batch {
				bytes += len(one.Events[0].Data)
			}
			require.True(t, bytes <= 1<<20 || len(batch) == 1, "%d bytes in %d appends", bytes, len(batch))
		}
		a.Stop(t.Context())
	})
}

func TestFullQueueBlocksOnlyItsSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &scriptedStore{answer: func(_ int, b []eventlog.Append) ([]error, error) {
			if has(b, "ses_flood") {
				<-release
			}
			return make([]error, len(b)), nil
		}}
		a := startAppender(t, s, eventlog.AppenderOptions{MaxQueued: 3})
		gaveUp, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var flood sync.WaitGroup
		for range 3 {
			flood.Go(func() { require.NoError(t, a.Append(t.Context(), add("ses_flood"))) })
		}
		synctest.Wait()
		require.ErrorIs(t, a.Append(gaveUp, add("ses_flood")), context.DeadlineExceeded)
		require.Less(t, appendAll(t, a, 5), time.Second)
		close(release)
		flood.Wait()
		require.NoError(t, a.Append(t.Context(), add("ses_flood")))
		a.Stop(t.Context())
	})
}
