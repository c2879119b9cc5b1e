package eventlog

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func isAwake(s *subscription) bool {
	select {
	case <-s.wake:
		return true
	default:
		return false
	}
}

func TestAReaderThatOverflowsIsWokenOnceAndCanLeave(t *testing.T) {
	t.Parallel()
	h := newHub()
	s := h.subscribe("ses_a", 0)
	for range 1000 { // nobody takes them: none of these may block
		h.publish([]string{"ses_a"})
	}
	h.unsubscribe(s)
	h.unsubscribe(s)
	h.publish([]string{"ses_a"})
	require.True(t, isAwake(s), "the wake-ups before it left are one")
	require.False(t, isAwake(s))
	require.Empty(t, h.sessions())
}

func TestSubscribePublishAndCloseAtOnce(t *testing.T) {
	t.Parallel()
	h := newHub()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 300 {
				s := h.subscribe("ses_"+strconv.Itoa(i%3), 0)
				s.advance(2)
				h.unsubscribe(s)
			}
		})
		all.Go(func() {
			for n := range 300 {
				switch n % 3 {
				case 0:
					h.publish([]string{"ses_0", "ses_1", "ses_nobody"})
				case 1:
					h.publish(nil)
				default:
					h.publishNewer(map[string]int64{"ses_2": int64(n)})
				}
				h.sessions()
			}
		})
	}
	all.Wait()
	require.Empty(t, h.sessions())
	require.Empty(t, h.readers)
}

func TestOnlyReadersOfTheSessionAreWoken(t *testing.T) {
	t.Parallel()
	h := newHub()
	a, b := h.subscribe("ses_a", 0), h.subscribe("ses_b", 0)
	h.publish([]string{"ses_a"})
	require.True(t, isAwake(a))
	require.False(t, isAwake(b))
	h.publish(nil)
	require.True(t, isAwake(a))
	require.True(t, isAwake(b))
}

func TestPollingWakesOnlyThoseWhoAreBehind(t *testing.T) {
	t.Parallel()
	h := newHub()
	behind, level := h.subscribe("ses_a", 3), h.subscribe("ses_a", 7)
	h.publishNewer(map[string]int64{"ses_a": 7, "ses_nobody": 9})
	require.True(t, isAwake(behind))
	require.False(t, isAwake(level))
}

// lateSource commits an event between the reader's place in the hub and its look.
type lateSource struct {
	events []Event
	hub    *hub
}

func (l *lateSource) EventsPage(_ context.Context, _ string, after int64, _ int) ([]Event, error) {
	page := l.events[after:]
	if len(l.events) == 1 {
		l.events = append(l.events, Event{Seq: 2})
		l.hub.publish([]string{"ses_a"})
	}
	return page, nil
}

func (l *lateSource) EventsPositions(context.Context, []string) (map[string]int64, error) {
	return nil, nil
}

func (l *lateSource) EventsListen(ctx context.Context, _ func(), _ func([]string)) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestTheLateReaderMissesNothing(t *testing.T) {
	t.Parallel()
	source := &lateSource{events: []Event{{Seq: 1}}}
	f := NewFollower(source, FollowerOptions{})
	source.hub = f.hub
	r, err := f.Follow(t.Context(), "ses_a", 0)
	require.NoError(t, err)
	defer r.Close()
	first, caughtUp, err := r.Next(t.Context())
	require.NoError(t, err)
	require.True(t, caughtUp)
	require.Equal(t, []Event{{Seq: 1}}, first)
	// It was committed while the reader was looking; nothing will say so again.
	second, _, err := r.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, []Event{{Seq: 2}}, second)
}
