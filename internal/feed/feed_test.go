package feed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const id = "ses_0123456789abcdef0123456789abcdef"

// shelf is a log in memory, whose readers return the events that the test appends, and the
// session's row.
type shelf struct {
	mu      sync.Mutex
	first   int64 // the oldest remaining seq
	events  []eventlog.Event
	session session.Session
	changed chan struct{}
	open    int
}

func newShelf(n int) *shelf {
	s := &shelf{first: 1, changed: make(chan struct{}), session: session.Session{ID: id, Status: session.Running}}
	for range n {
		s.append("text_delta", `{"delta":"a\n\n b"}`)
	}
	return s
}

func (s *shelf) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *shelf) append(kind, data string) {
	s.change(func() {
		s.events = append(s.events, eventlog.Event{Seq: int64(len(s.events) + 1), Type: kind, SessionID: id, At: time.UnixMilli(1), Data: json.RawMessage(data)})
	})
}

func (s *shelf) SessionGet(context.Context, string) (session.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session, nil
}

func (s *shelf) Follow(_ context.Context, _ string, after int64) (feed.Reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case after > int64(len(s.events)):
		return nil, &eventlog.FuturePositionError{Newest: int64(len(s.events))}
	case after < s.first-1:
		return nil, &eventlog.PositionGoneError{First: s.first}
	}
	s.open++
	return &reader{shelf: s, after: after}, nil
}

type reader struct {
	*shelf
	after    int64
	caughtUp bool
}

func (r *reader) Close() { r.change(func() { r.open-- }) }

func (r *reader) Next(ctx context.Context, timer <-chan time.Time) (eventlog.Batch, error) {
	for {
		r.mu.Lock()
		changed := r.changed
		b, err := r.take()
		r.mu.Unlock()
		if err != nil || b.Len() > 0 || b.CaughtUp {
			return b, err
		}
		select {
		case <-changed:
		case <-timer:
			return eventlog.Batch{After: r.after, Last: r.after}, nil
		case <-ctx.Done():
			return eventlog.Batch{}, ctx.Err()
		}
	}
}

// take returns at most two events.
func (r *reader) take() (eventlog.Batch, error) {
	if r.after < r.first-1 {
		return eventlog.Batch{}, &eventlog.PositionGoneError{First: r.first}
	}
	format := feed.Format()
	page := eventlog.NewPage(&format, id, r.after)
	for _, e := range r.events[r.after:min(int(r.after)+2, len(r.events))] {
		page.Add(&e)
	}
	b := page.Batch()
	r.after = b.Last
	b.CaughtUp = !r.caughtUp && r.after == int64(len(r.events))
	r.caughtUp = r.caughtUp || b.CaughtUp
	return b, nil
}

func open(t *testing.T, s *shelf, after int64) *feed.Feed {
	t.Helper()
	f, err := feed.New(s, s).Open(t.Context(), id, after, time.Hour)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	return f
}

// nextItems describes an item briefly.
func nextItems(t *testing.T, f *feed.Feed) string {
	t.Helper()
	item, err := f.Next(t.Context())
	require.NoError(t, err)
	text := ""
	for seq, line := range feed.Events(item.Events) {
		e, err := feed.Decode(line)
		require.NoError(t, err, "%s", line)
		require.Equal(t, seq, e.Seq)
		require.Equal(t, id, e.SessionID)
		text += fmt.Sprintf("%d %s ", seq, e.Type)
	}
	if item.CaughtUp {
		text += "caught up "
	}
	if item.Gap != nil {
		text += fmt.Sprintf("gap %d-%d ", item.Gap.From, item.Gap.To)
	}
	if item.End {
		text += "end "
	}
	return text
}

func TestFeedCatchesUpFollowsAndEnds(t *testing.T) {
	t.Parallel()
	s := newShelf(3)
	f := open(t, s, 0)
	require.Equal(t, "1 text_delta 2 text_delta ", nextItems(t, f))
	require.Equal(t, "3 text_delta caught up ", nextItems(t, f))
	s.change(func() { s.session.Status, s.session.Queue.Processing = session.Terminated, 1 })
	s.append(event.TypeStatus, `{"status":"terminated"}`)
	require.Equal(t, "4 status ", nextItems(t, f))
	s.change(func() { s.session.Queue.Processing = 0 })
	s.append("prompt", `{}`)
	require.Equal(t, "5 prompt ", nextItems(t, f), "what was written with the last prompt's end comes before the end")
	require.Equal(t, "end ", nextItems(t, f))
	require.EqualValues(t, 5, f.Position())
}

func TestFeedOfEndedSessionEnds(t *testing.T) {
	t.Parallel()
	s := newShelf(1)
	s.session.Status = session.Terminated
	f := open(t, s, 1)
	require.Equal(t, "caught up ", nextItems(t, f))
	require.Equal(t, "end ", nextItems(t, f))
}

func TestFeedOfLatestStartsWithNewEvents(t *testing.T) {
	t.Parallel()
	s := newShelf(5)
	f := open(t, s, feed.Latest)
	require.Equal(t, "caught up ", nextItems(t, f))
	s.append("title", `{}`)
	require.Equal(t, "6 title ", nextItems(t, f))
}

func TestDeletedRangeIsOneGap(t *testing.T) {
	t.Parallel()
	s := newShelf(9)
	f := open(t, s, 0)
	require.Equal(t, "1 text_delta 2 text_delta ", nextItems(t, f))
	s.change(func() { s.first = 8 })
	require.Equal(t, "gap 3-7 ", nextItems(t, f))
	require.EqualValues(t, 7, f.Position())
	require.Equal(t, "8 text_delta 9 text_delta caught up ", nextItems(t, f))
	_, err := feed.New(s, s).Open(t.Context(), id, 0, 0)
	var gone *eventlog.PositionGoneError
	require.ErrorAs(t, err, &gone)
}

func TestFeedEndsAfterGapWithFinalStatus(t *testing.T) {
	t.Parallel()
	s := newShelf(1)
	f := open(t, s, 0)
	require.Equal(t, "1 text_delta caught up ", nextItems(t, f))
	s.append(event.TypeStatus, `{"status":"terminated"}`)
	s.change(func() { s.session.Status, s.first = session.Terminated, 3 })
	require.Equal(t, "gap 2-2 ", nextItems(t, f))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	item, err := f.Next(ctx)
	require.NoError(t, err)
	require.True(t, item.End)
}

func TestIdleFeedSendsHeartbeats(t *testing.T) {
	t.Parallel()
	s := newShelf(0)
	f, err := feed.New(s, s).Open(t.Context(), id, 0, time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, "caught up ", nextItems(t, f))
	require.Empty(t, nextItems(t, f))
	require.Empty(t, nextItems(t, f))
	f.Close()
	require.Zero(t, s.open)
}

// slowSessions is a store whose reads wait until the test lets them end.
type slowSessions struct {
	*shelf
	reads atomic.Int64
	end   chan struct{}
}

func (s *slowSessions) SessionGet(ctx context.Context, sessionID string) (session.Session, error) {
	s.reads.Add(1)
	<-s.end
	return s.shelf.SessionGet(ctx, sessionID)
}

func TestFeedsOpenedTogetherShareReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowSessions{shelf: newShelf(3), end: make(chan struct{})}
		feeds := feed.New(s, s)
		var opened sync.WaitGroup
		for range 500 {
			opened.Go(func() {
				f, err := feeds.Open(t.Context(), id, 0, time.Hour)
				if err != nil {
					t.Error(err)
					return
				}
				f.Close()
			})
		}
		synctest.Wait()
		s.end <- struct{}{} // the first feed's read, which began before the other feeds were opened
		s.end <- struct{}{}
		opened.Wait()
		require.EqualValues(t, 2, s.reads.Load())
		require.Zero(t, s.open)
	})
}
