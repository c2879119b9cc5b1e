package turn

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInboxKeepsOrderOfMessages(t *testing.T) {
	t.Parallel()
	b := newInbox()
	const messages = 3*linkBacklog + 7
	var sending sync.WaitGroup
	sending.Go(func() {
		defer b.close()
		for i := range int64(messages) {
			if !b.put(t.Context(), heldMessage{weight: i}) {
				return
			}
		}
	})
	next := int64(0)
	var held []heldMessage
	for ended := false; !ended || len(held) > 0; {
		<-b.ready
		held, ended = b.take(held)
		require.True(t, ended || len(held) > 0, "a token without a message")
		require.LessOrEqual(t, len(held), linkBacklog)
		for _, h := range held {
			require.Equal(t, next, h.weight)
			next++
		}
	}
	require.EqualValues(t, messages, next)
	sending.Wait()
	_, ended := b.take(nil)
	require.True(t, ended, "its end may be asked for again")
}

func TestFullInboxWaits(t *testing.T) {
	t.Parallel()
	b := newInbox()
	for range linkBacklog {
		require.True(t, b.put(t.Context(), heldMessage{}))
	}
	ended, end := context.WithCancel(t.Context())
	end()
	require.False(t, b.put(ended, heldMessage{}))
	<-b.ready
	held, _ := b.take(nil)
	require.Len(t, held, linkBacklog)
	require.True(t, b.put(ended, heldMessage{}), "there is room again")
}

func TestIdleInboxHasNoMemoryForBurst(t *testing.T) {
	t.Parallel()
	b := newInbox()
	for range linkBacklog {
		b.put(t.Context(), heldMessage{})
	}
	var held []heldMessage
	for range 3 {
		<-b.ready
		held, _ = b.take(held)
		b.put(t.Context(), heldMessage{})
	}
	require.LessOrEqual(t, cap(held)+cap(b.waiting), 2*idleBacklog)
}
