package eventlog_test

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
)

// memorySource is a log in memory with a number of events, which counts the pages that are read.
type memorySource struct {
	newest int64
	reads  atomic.Int64
}

func (s *memorySource) EventsRead(_ context.Context, pages []*eventlog.Page) error {
	for _, p := range pages {
		s.reads.Add(1)
		p.Bounds(1, s.newest)
		for seq := p.After + 1; seq <= min(p.After+int64(p.Limit), p.Through, s.newest); seq++ {
			p.Add(&eventlog.Event{Seq: seq, Data: json.RawMessage(`{}`)})
		}
	}
	return nil
}

func (s *memorySource) EventsBounds(context.Context, string) (eventlog.Bounds, error) {
	return eventlog.Bounds{First: 1, Newest: s.newest}, nil
}

func (s *memorySource) EventsPositions(context.Context, []string) (map[string]eventlog.Bounds, error) {
	return nil, nil
}

func (s *memorySource) EventsListen(ctx context.Context, _ func(), _ func([]eventlog.Growth)) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestPagesReadAheadAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const bound = 2
		source := &memorySource{newest: 100}
		f := eventlog.NewFollower(source, eventlog.FollowerOptions{PageEvents: 10, PrefetchBytes: bound * eventlog.PageBytes, Linger: -1})
		defer f.Stop()
		// open opens readers and returns how many pages are read for the first batch of each.
		open := func(n int) (readers []*eventlog.Reader, reads int64) {
			before := source.reads.Load()
			for range n {
				r, err := f.Follow(t.Context(), "ses_a", 0)
				require.NoError(t, err)
				b, err := r.Next(t.Context(), nil)
				require.NoError(t, err)
				require.Equal(t, 10, b.Len())
				readers = append(readers, r)
			}
			synctest.Wait()
			return readers, source.reads.Load() - before
		}
		for range 2 { // closed readers do not count
			readers, reads := open(bound)
			require.EqualValues(t, 2*bound, reads, "one page of each reader is read ahead")
			more, reads := open(3)
			require.EqualValues(t, 3, reads, "no page is read ahead")
			for _, r := range append(readers, more...) {
				readTo(t.Context(), t, r, 50)
			}
			for _, r := range append(readers, more...) {
				r.Close()
			}
			require.False(t, f.Prefetching())
		}
	})
}

// TestReadAheadOfClosedReaderDoesNotCount closes readers while they read.
func TestReadAheadOfClosedReaderDoesNotCount(t *testing.T) {
	t.Parallel()
	f := eventlog.NewFollower(&memorySource{newest: 100}, eventlog.FollowerOptions{PageEvents: 2, PrefetchBytes: 4 * eventlog.PageBytes})
	t.Cleanup(f.Stop)
	var all sync.WaitGroup
	for range 300 {
		r, err := f.Follow(t.Context(), "ses_a", 0)
		require.NoError(t, err)
		begun := make(chan struct{})
		all.Go(func() {
			close(begun)
			for {
				if _, err := r.Next(t.Context(), nil); err != nil {
					return
				}
			}
		})
		<-begun
		all.Go(r.Close)
	}
	all.Wait()
	require.False(t, f.Prefetching())
}
