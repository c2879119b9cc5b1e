package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// numberedSource is a log of one session whose events have their positions as data. Its reports
// arrive as the test sends them: Postgres cannot be made to reorder or repeat those of one writer.
type numberedSource struct {
	listens chan struct{} // closed when all topics have been read for the connection

	mu     sync.Mutex
	newest int64
}

func (s *numberedSource) grow(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest += n
}

func (s *numberedSource) bounds() Bounds {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Bounds{First: 1, Newest: s.newest}
}

func numbered(seq int64) Event {
	return Event{Seq: seq, SessionID: "ses_a", Data: json.RawMessage(fmt.Sprint(seq))}
}

func (s *numberedSource) EventsRead(_ context.Context, pages []*Page) error {
	b := s.bounds()
	for _, p := range pages {
		p.Bounds(b.First, b.Newest)
		for seq, n := p.After+1, 0; seq <= min(b.Newest, p.Through) && n < p.Limit; seq, n = seq+1, n+1 {
			e := numbered(seq)
			p.Add(&e)
		}
	}
	return nil
}

func (s *numberedSource) EventsBounds(context.Context, string) (Bounds, error) {
	return s.bounds(), nil
}

func (s *numberedSource) EventsPositions(context.Context, []string) (map[string]Bounds, error) {
	return map[string]Bounds{"ses_a": s.bounds()}, nil
}

func (s *numberedSource) EventsListen(ctx context.Context, ready func(), _ func([]Growth)) error {
	ready()
	close(s.listens)
	<-ctx.Done()
	return ctx.Err()
}

// TestReportsInAnyOrderLoseNothing sends the reports of commits late, in any order, twice, merged
// (with a gap, if the report between has been sent), without their events, or not at all before the
// last one. A reader gets every event once and in
// order, without a poll.
func TestReportsInAnyOrderLoseNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		source := &numberedSource{listens: make(chan struct{})}
		f := NewFollower(source, FollowerOptions{
			Poll: time.Hour, PageEvents: 5, TailBytes: rapid.SampledFrom([]int{300, 1 << 20}).Draw(t, "tail"),
			Format: Format{Head: func(dst []byte, e *Event) []byte { return fmt.Appendf(dst, "%d=", e.Seq) }, Tail: "\n"},
		})
		f.Start()
		defer f.Stop()
		<-source.listens
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		r, err := f.Follow(ctx, "ses_a", 0)
		require.NoError(t, err)
		defer r.Close()
		var unsent []Growth
		for range rapid.IntRange(1, 12).Draw(t, "commits") {
			first := source.bounds().Newest + 1
			g := Growth{SessionID: "ses_a"}
			n := rapid.Int64Range(1, 9).Draw(t, "events")
			source.grow(n)
			if rapid.IntRange(0, 3).Draw(t, "reported") > 0 {
				for seq := first; seq < first+n; seq++ {
					g.Events = append(g.Events, numbered(seq))
				}
			}
			if last := len(unsent) - 1; last >= 0 && len(g.Events) > 0 && len(unsent[last].Events) > 0 && rapid.Bool().Draw(t, "merged") {
				g.Events = append(append([]Event(nil), unsent[last].Events...), g.Events...)
			}
			unsent = append(unsent, g)
			for len(unsent) > 0 && rapid.Bool().Draw(t, "sends") {
				at := rapid.IntRange(0, len(unsent)-1).Draw(t, "which")
				f.changed(unsent[at : at+1])
				if rapid.Bool().Draw(t, "once") {
					unsent = append(unsent[:at], unsent[at+1:]...)
				}
			}
		}
		newest := source.bounds().Newest
		f.changed([]Growth{{SessionID: "ses_a", Events: []Event{numbered(newest)}}})
		want, got := "", ""
		for seq := int64(1); seq <= newest; seq++ {
			want += fmt.Sprintf("%d=%d\n", seq, seq)
		}
		for r.Position() < newest {
			b, err := r.Next(ctx, nil)
			require.NoError(t, err)
			got += string(b.Frames)
		}
		require.Equal(t, want, got)
	})
}

// slowBounds is a source whose reads of bounds wait until the test lets them end.
type slowBounds struct {
	*numberedSource
	reads atomic.Int64
	end   chan struct{}
}

func (s *slowBounds) EventsBounds(ctx context.Context, sessionID string) (Bounds, error) {
	s.reads.Add(1)
	<-s.end
	return s.numberedSource.EventsBounds(ctx, sessionID)
}

func TestReadersOpenedTogetherShareRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &slowBounds{numberedSource: &numberedSource{newest: 3}, end: make(chan struct{})}
		f := NewFollower(source, FollowerOptions{Linger: -1})
		var opened sync.WaitGroup
		for n := range 500 {
			opened.Go(func() {
				r, err := f.Follow(t.Context(), "ses_a", int64(n%5))
				var future *FuturePositionError
				switch {
				case n%5 == 4 && !errors.As(err, &future), n%5 < 4 && err != nil:
					t.Error(n, err)
				case err == nil:
					r.Close()
				}
			})
		}
		synctest.Wait()
		source.end <- struct{}{} // the read that began before the other readers were opened
		source.end <- struct{}{}
		opened.Wait()
		require.EqualValues(t, 2, source.reads.Load())
	})
}
