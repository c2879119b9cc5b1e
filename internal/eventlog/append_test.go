package eventlog_test

import (
	"context"
	"errors"
	"flag"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
)

// TestMain reduces the default number of runs of properties, since each run writes to a database.
// -rapid.checks overrides it.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "30"); err != nil {
		panic(err)
	}
	leaktest.Main(m)
}

// scriptedStore answers commits with the results of its function and records them.
type scriptedStore struct {
	mu      sync.Mutex
	batches [][]eventlog.Append
	answer  func(n int, batch []eventlog.Append) ([]error, error)
}

func (s *scriptedStore) EventsAppend(_ context.Context, batch []eventlog.Append) ([]error, error) {
	s.mu.Lock()
	s.batches = append(s.batches, batch)
	n := len(s.batches)
	s.mu.Unlock()
	if s.answer == nil {
		return make([]error, len(batch)), nil
	}
	return s.answer(n, batch)
}

func (s *scriptedStore) EventsTryAppend(ctx context.Context, batch []eventlog.Append) ([]error, error) {
	return s.EventsAppend(ctx, batch)
}

func (s *scriptedStore) EventsPosition(context.Context, string) (int64, error) { return 42, nil }

func (s *scriptedStore) sizes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []int
	for _, b := range s.batches {
		out = append(out, len(b))
	}
	return out
}

func startAppender(t *testing.T, s eventlog.Store, o eventlog.AppenderOptions) *eventlog.Appender {
	t.Helper()
	a := eventlog.NewAppender(s, o)
	a.Start()
	t.Cleanup(func() { a.Stop(context.Background()) })
	return a
}

func add(id string) eventlog.Append { return eventlog.Append{SessionID: id} }

func TestSingleAppendDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := startAppender(t, &scriptedStore{}, eventlog.AppenderOptions{})
		begin := time.Now()
		for range 10 {
			require.NoError(t, a.Append(t.Context(), add("ses_a")))
		}
		require.Zero(t, time.Since(begin))
		a.Stop(t.Context())
	})
}

func TestAppendsGatherDuringCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scriptedStore{answer: func(_ int, b []eventlog.Append) ([]error, error) {
			time.Sleep(time.Millisecond) // in the bubble: a commit takes a while
			return make([]error, len(b)), nil
		}}
		a := startAppender(t, s, eventlog.AppenderOptions{MaxBatch: 10})
		var all sync.WaitGroup
		all.Go(func() { require.NoError(t, a.Append(t.Context(), add("ses_first"))) })
		synctest.Wait()
		for i := range 15 {
			all.Go(func() { require.NoError(t, a.Append(t.Context(), add("ses_"+strconv.Itoa(i)))) })
		}
		all.Wait()
		require.Equal(t, []int{1, 10, 5}, s.sizes())
		a.Stop(t.Context())
	})
}

// TestCommitsGrowWhileServerIsBusy has 50 sessions append a word every 100 ms, each after the
// previous one, to a server that takes 8 ms for a commit. Because appends share commits, the server
// is idle half of the time.
func TestCommitsGrowWhileServerIsBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const sessions, words, commit, pause = 50, 40, 8 * time.Millisecond, 12 * time.Millisecond
		s := &scriptedStore{answer: func(_ int, b []eventlog.Append) ([]error, error) {
			time.Sleep(commit)
			return make([]error, len(b)), nil
		}}
		a := startAppender(t, s, eventlog.AppenderOptions{})
		var all sync.WaitGroup
		for i := range sessions {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 2 * time.Millisecond)
				next := time.NewTicker(100 * time.Millisecond)
				defer next.Stop()
				for range words {
					began := time.Now()
					require.NoError(t, a.Append(t.Context(), add("ses_"+strconv.Itoa(i))))
					require.LessOrEqual(t, time.Since(began), 2*commit+pause, "a commit in progress, a pause, and its own commit")
					<-next.C
				}
			})
		}
		all.Wait()
		require.GreaterOrEqual(t, sessions*words/len(s.sizes()), 6, "appends of a commit; 4 without the pause")

		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(t, a.Append(t.Context(), add("ses_lone")))
		require.Equal(t, commit, time.Since(began), "an append on its own does not wait")
		a.Stop(t.Context())
	})
}

// TestManySlowSessionsShareCommits has sessions append a word every 100 ms, each after the previous
// one, to a server that takes 2 ms for a commit. A hundred of them share a commit every 14 ms; a
// few wait for 3 ms between commits.
func TestManySlowSessionsShareCommits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sessions, atLeast int // appends of a commit
		longest           time.Duration
	}{
		{100, 12, 2*2*time.Millisecond + 12*time.Millisecond},
		{20, 1, 2*2*time.Millisecond + 3*time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			const words, commit = 40, 2 * time.Millisecond
			s := &scriptedStore{answer: func(_ int, b []eventlog.Append) ([]error, error) {
				time.Sleep(commit)
				return make([]error, len(b)), nil
			}}
			a := startAppender(t, s, eventlog.AppenderOptions{})
			var all sync.WaitGroup
			for i := range c.sessions {
				all.Go(func() {
					time.Sleep(time.Duration(i) * 100 * time.Millisecond / time.Duration(c.sessions))
					next := time.NewTicker(100 * time.Millisecond)
					defer next.Stop()
					for range words {
						began := time.Now()
						require.NoError(t, a.Append(t.Context(), add("ses_"+strconv.Itoa(i))))
						require.LessOrEqual(t, time.Since(began), c.longest)
						<-next.C
					}
				})
			}
			all.Wait()
			require.GreaterOrEqual(t, c.sessions*words/len(s.sizes()), c.atLeast, "appends of a commit")
			a.Stop(t.Context())
		})
	}
}

// TestLargeCommitsFollowOneAnother has 40 sessions append 16 events at a time, each append after
// the previous one, to a server that takes 8 ms for a commit. They form at most two groups, each of which shares
// its commits, because a second large commit runs alongside the first; the server is idle for less than a sixth of the time.
func TestLargeCommitsFollowOneAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const sessions, appends, commit = 40, 20, 8 * time.Millisecond
		var mu sync.Mutex
		var running int
		var idleSince time.Time
		var idle time.Duration
		s := &scriptedStore{answer: func(_ int, b []eventlog.Append) ([]error, error) {
			mu.Lock()
			if running == 0 && !idleSince.IsZero() {
				idle += time.Since(idleSince)
			}
			running++
			mu.Unlock()
			time.Sleep(commit)
			mu.Lock()
			running--
			idleSince = time.Now()
			mu.Unlock()
			return make([]error, len(b)), nil
		}}
		a := startAppender(t, s, eventlog.AppenderOptions{})
		began := time.Now()
		var all sync.WaitGroup
		for i := range sessions {
			all.Go(func() {
				for range appends {
					large := add("ses_" + strconv.Itoa(i))
					large.Events = make([]eventlog.Draft, 16)
					require.NoError(t, a.Append(t.Context(), large))
				}
			})
		}
		all.Wait()
		require.LessOrEqual(t, len(s.sizes()), 2*appends+3, "commits; the first ones have not all sessions")
		require.Less(t, idle, time.Since(began)/6)
		require.Less(t, time.Since(began), 3*appends*commit/2)
		a.Stop(t.Context())
	})
}

// TestLargeCommitRunsAlongsideAnother has sessions append while a commit is in progress: few events wait
// for its end, many do not, and a third commit waits for one of the two.
func TestLargeCommitRunsAlongsideAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		release := sync.OnceFunc(func() { close(end) })
		defer release()
		s := &scriptedStore{answer: func(_ int, b []eventlog.Append) ([]error, error) {
			<-end
			return make([]error, len(b)), nil
		}}
		a := startAppender(t, s, eventlog.AppenderOptions{})
		var all sync.WaitGroup
		sessions := 0
		appends := func(events int) {
			sessions++
			one := add("ses_" + strconv.Itoa(sessions))
			one.Events = make([]eventlog.Draft, events)
			all.Go(func() { require.NoError(t, a.Append(t.Context(), one)) })
			synctest.Wait()
		}
		appends(1)
		appends(200)
		require.Equal(t, []int{1}, s.sizes())
		appends(56)
		require.Equal(t, []int{1, 2}, s.sizes())
		appends(1000)
		require.Equal(t, []int{1, 2}, s.sizes())
		release()
		all.Wait()
		require.Equal(t, []int{1, 2, 1}, s.sizes())
		a.Stop(t.Context())
	})
}

func TestOnlyFencedAppendFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scriptedStore{answer: func(_ int, b []eventlog.Append) ([]error, error) {
			time.Sleep(time.Millisecond)
			verdicts := make([]error, len(b))
			for i := range b {
				if b[i].SessionID == "ses_fenced" {
					verdicts[i] = eventlog.ErrFenced
				}
			}
			return verdicts, nil
		}}
		a := startAppender(t, s, eventlog.AppenderOptions{})
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { require.NoError(t, a.Append(t.Context(), add("ses_a"))) })
			all.Go(func() { require.ErrorIs(t, a.Append(t.Context(), add("ses_fenced")), eventlog.ErrFenced) })
		}
		all.Wait()
		a.Stop(t.Context())
	})
}

func TestCommitIsRetriedWhileCallerWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scriptedStore{answer: func(n int, b []eventlog.Append) ([]error, error) {
			if n < 4 {
				return nil, failure.Errorf(failure.Unavailable, "away")
			}
			return make([]error, len(b)), nil
		}}
		a := startAppender(t, s, eventlog.AppenderOptions{})
		require.NoError(t, a.Append(t.Context(), add("ses_a")))
		require.Equal(t, []int{1, 1, 1, 1}, s.sizes())
		a.Stop(t.Context())
	})
}

func TestCallerMayCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scriptedStore{answer: func(int, []eventlog.Append) ([]error, error) {
			return nil, failure.Errorf(failure.Unavailable, "away")
		}}
		a := startAppender(t, s, eventlog.AppenderOptions{})
		errCancelled := errors.New("gave up")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errCancelled)
		defer cancel()
		require.ErrorIs(t, a.Append(ctx, add("ses_a")), errCancelled)
		tries := len(s.sizes())
		time.Sleep(time.Minute) // in the bubble: no caller is waiting any more, so there are no attempts
		synctest.Wait()
		require.LessOrEqual(t, len(s.sizes()), tries+1)
		a.Stop(t.Context())
	})
}

func TestFailedAppendDoesNotFailOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scriptedStore{answer: func(_ int, b []eventlog.Append) ([]error, error) {
			time.Sleep(time.Millisecond)
			for _, one := range b {
				if one.SessionID == "ses_poison" {
					return nil, failure.Errorf(failure.Internal, "cannot be stored")
				}
			}
			return make([]error, len(b)), nil
		}}
		a := startAppender(t, s, eventlog.AppenderOptions{})
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { require.NoError(t, a.Append(t.Context(), add("ses_a"))) })
		}
		all.Go(func() { require.ErrorContains(t, a.Append(t.Context(), add("ses_poison")), "cannot be stored") })
		all.Wait()
		a.Stop(t.Context())
	})
}

func TestStopCommitsPendingAppends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scriptedStore{}
		a := eventlog.NewAppender(s, eventlog.AppenderOptions{})
		a.Start()
		a.Start()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if err := a.Append(t.Context(), add("ses_a")); err != nil {
					require.ErrorIs(t, err, eventlog.ErrStopped)
				}
			})
		}
		a.Stop(t.Context())
		a.Stop(t.Context())
		all.Wait()
		require.ErrorIs(t, a.Append(t.Context(), add("ses_a")), eventlog.ErrStopped)
	})
}

func TestStopBeforeStart(t *testing.T) {
	t.Parallel()
	a := eventlog.NewAppender(&scriptedStore{}, eventlog.AppenderOptions{})
	a.Stop(t.Context())
	a.Start()
	require.ErrorIs(t, a.Append(t.Context(), add("ses_a")), eventlog.ErrStopped)
	a.Stop(t.Context())
}

func TestStopEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scriptedStore{answer: func(int, []eventlog.Append) ([]error, error) {
			return nil, failure.Errorf(failure.Unavailable, "away")
		}}
		a := eventlog.NewAppender(s, eventlog.AppenderOptions{})
		a.Start()
		var all sync.WaitGroup
		all.Go(func() { require.ErrorIs(t, a.Append(t.Context(), add("ses_a")), eventlog.ErrStopped) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		a.Stop(ctx)
		all.Wait()
	})
}

func TestStartStopAndAppendAtOnce(t *testing.T) {
	t.Parallel()
	for range 200 {
		a := eventlog.NewAppender(&scriptedStore{}, eventlog.AppenderOptions{MaxQueued: 1})
		var all sync.WaitGroup
		all.Go(a.Start)
		for range 3 {
			all.Go(func() {
				if err := a.Append(t.Context(), add("ses_a")); err != nil {
					require.ErrorIs(t, err, eventlog.ErrStopped)
				}
			})
		}
		all.Go(func() { a.Stop(context.Background()) })
		all.Wait()
	}
}
