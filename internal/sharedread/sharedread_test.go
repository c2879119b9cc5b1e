package sharedread_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/sharedread"
)

// shelf counts reads, each of which waits until the test lets it end.
type shelf struct {
	begun atomic.Int64
	end   chan struct{}
	value atomic.Int64
	ended atomic.Pointer[error] // why the context of the last read ended
}

func (s *shelf) read(ctx context.Context, _ string) (int64, error) {
	value := s.value.Load()
	s.begun.Add(1)
	select {
	case <-s.end:
		return value, nil
	case <-ctx.Done():
		err := ctx.Err()
		s.ended.Store(&err)
		return 0, err
	}
}

// get reads a value that must be read without an error.
func get(t *testing.T, reads *sharedread.Reads[int64], key string) {
	if _, err := reads.Get(t.Context(), key); err != nil {
		t.Error(err)
	}
}

func TestCallersShareReadThatBeginsAfterTheirCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{end: make(chan struct{})}
		reads := sharedread.New(s.read)
		var group sync.WaitGroup
		defer group.Wait()
		getAll := func(callers int, want int64) {
			for range callers {
				group.Go(func() {
					got, err := reads.Get(t.Context(), "a")
					if err != nil || got != want {
						t.Errorf("got %d, %v; want %d", got, err, want)
					}
				})
			}
			synctest.Wait()
		}

		getAll(1, 0)
		s.value.Store(1)
		getAll(100, 1) // the read in progress began too early for them
		require.EqualValues(t, 1, s.begun.Load())
		s.end <- struct{}{}
		synctest.Wait()
		require.EqualValues(t, 2, s.begun.Load())
		s.value.Store(2)
		getAll(100, 2)
		s.end <- struct{}{}
		s.end <- struct{}{}
		group.Wait()
		require.EqualValues(t, 3, s.begun.Load())

		getAll(1, 2) // nothing is kept
		require.EqualValues(t, 4, s.begun.Load())
		s.end <- struct{}{}
	})
}

func TestCallerThatLeavesDoesNotEndTheReadOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{end: make(chan struct{})}
		reads := sharedread.New(s.read)
		cause := errors.New("the client has left")
		left := make(chan error, 2)
		leaves := func() context.CancelCauseFunc {
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				_, err := reads.Get(ctx, "a")
				left <- err
			}()
			synctest.Wait()
			return cancel
		}
		stays := make(chan error, 1)
		first, second := leaves(), leaves()
		go func() {
			_, err := reads.Get(t.Context(), "a")
			stays <- err
		}()
		synctest.Wait()

		first(cause)
		require.ErrorIs(t, <-left, cause)
		synctest.Wait()
		require.ErrorIs(t, *s.ended.Load(), context.Canceled, "no caller waited for the first read")
		require.EqualValues(t, 2, s.begun.Load())
		second(cause)
		require.ErrorIs(t, <-left, cause)
		s.end <- struct{}{}
		require.NoError(t, <-stays)

		cancel := leaves()
		third := leaves()
		third(cause) // before its read has begun
		require.Error(t, <-left)
		cancel(cause)
		require.Error(t, <-left)
		synctest.Wait()
		require.EqualValues(t, 3, s.begun.Load())
	})
}

func TestHangingReadDelaysOthersForASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{end: make(chan struct{})}
		reads := sharedread.New(s.read)
		var group sync.WaitGroup
		defer group.Wait()
		for range 100 {
			group.Go(func() { get(t, reads, "a") })
		}
		synctest.Wait()
		require.EqualValues(t, 1, s.begun.Load())
		<-time.After(time.Second)
		synctest.Wait()
		require.EqualValues(t, 2, s.begun.Load(), "the 99 others share one read")

		group.Go(func() { get(t, reads, "a") })
		synctest.Wait()
		<-time.After(time.Second)
		synctest.Wait()
		require.EqualValues(t, 3, s.begun.Load())
		s.end <- struct{}{}
		s.end <- struct{}{}
		s.end <- struct{}{}
		group.Wait()
		group.Go(func() { get(t, reads, "a") })
		s.end <- struct{}{}
	})
}

func TestReadsOfDifferentKeysRunAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{end: make(chan struct{})}
		reads := sharedread.New(s.read)
		var group sync.WaitGroup
		for n := range 100 {
			group.Go(func() { get(t, reads, string(rune('a'+n))) })
		}
		synctest.Wait()
		require.EqualValues(t, 100, s.begun.Load())
		for range 100 {
			s.end <- struct{}{}
		}
		group.Wait()
	})
}

func TestPanicReachesEveryCallerWithItsStack(t *testing.T) {
	t.Parallel()
	reads := sharedread.New(func(context.Context, string) (int, error) { panic("broken") })
	for range 2 {
		func() {
			defer func() {
				err, ok := recover().(error)
				require.True(t, ok)
				require.ErrorContains(t, err, "broken\n")
				require.ErrorContains(t, err, "sharedread_test.go")
			}()
			_, _ = reads.Get(t.Context(), "a")
		}()
	}
}

func TestReadThatExitsIsError(t *testing.T) {
	t.Parallel()
	reads := sharedread.New(func(context.Context, string) (int, error) { runtime.Goexit(); return 0, nil })
	for range 2 {
		_, err := reads.Get(t.Context(), "a")
		require.ErrorContains(t, err, "exited")
	}
}
