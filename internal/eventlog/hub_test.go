package eventlog

import (
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func isAwake(wake <-chan struct{}) bool {
	select {
	case <-wake:
		return true
	default:
		return false
	}
}

func TestOverflowedWatcherIsWokenOnce(t *testing.T) {
	t.Parallel()
	h := newHub()
	wake := h.watch("ses_a")
	for range 1000 { // no receiver: none of these may block
		h.publish([]Growth{{SessionID: "ses_a"}})
	}
	h.unwatch("ses_a", wake)
	h.unwatch("ses_a", wake)
	h.publish([]Growth{{SessionID: "ses_a"}})
	require.True(t, isAwake(wake), "the wake-ups before it left are one")
	require.False(t, isAwake(wake))
	require.Empty(t, h.watchers)
}

func TestWatchPublishAndLeaveAtOnce(t *testing.T) {
	t.Parallel()
	h := newHub()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 300 {
				id := "ses_" + strconv.Itoa(i%3)
				h.unwatch(id, h.watch(id))
			}
		})
		all.Go(func() {
			for n := range 300 {
				if n%2 == 0 {
					h.publish([]Growth{{SessionID: "ses_0"}, {SessionID: "ses_1"}, {SessionID: "ses_2"}})
				} else {
					h.publish(nil)
				}
			}
		})
	}
	all.Wait()
	require.Empty(t, h.watchers)
}

func TestOnlyWatchersOfSessionAreWoken(t *testing.T) {
	t.Parallel()
	h := newHub()
	a, b := h.watch("ses_a"), h.watch("ses_b")
	h.publish([]Growth{{SessionID: "ses_a"}})
	require.True(t, isAwake(a))
	require.False(t, isAwake(b))
	h.publish(nil)
	require.True(t, isAwake(a))
	require.True(t, isAwake(b))
}
