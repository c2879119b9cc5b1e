package api_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestSilentClientIsDisconnected(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) {
		c.Heartbeat = 10 * time.Millisecond
		api.WaitFor(c, 20*time.Millisecond)
	})
	b.socket("/api/sessions/" + b.store.Put(session.Running) + "/ws") // the client answers no pings, because the test does not read from it
	require.Eventually(t, func() bool {
		return b.store.OpenReaders() == 0 && strings.Contains(b.logs.String(), "WebSocket closed")
	}, waitLimit, time.Millisecond)
}

func TestClientThatAnswersPingsStaysConnected(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.Heartbeat = 500 * time.Millisecond })
	pings := make(chan struct{}, 10)
	conn, _, err := websocket.Dial(t.Context(), b.url+"/api/sessions/"+b.store.Put(session.Running)+"/ws", &websocket.DialOptions{ //nolint:bodyclose // the library has closed it
		HTTPClient: b.client, OnPingReceived: func(context.Context, []byte) bool { pings <- struct{}{}; return true },
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.CloseNow() })
	s := &sock{t, conn}
	require.Equal(t, []string{"init", "caught_up"}, s.brief(2))
	go func() { _, _ = s.read() }() // the client answers pings
	for range 4 {
		<-pings
	}
}

func TestUnreadingClientIsDisconnected(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.WriteTimeout = 5 * time.Second })
	id := b.store.Put(session.Running)
	b.socket("/api/sessions/" + id + "/ws")
	other := b.socket("/api/sessions/" + id + "/ws")
	require.Equal(t, []string{"init", "caught_up"}, other.brief(2))
	go func() {
		for range 40 {
			b.store.Text(id, strings.Repeat("x", 1<<20))
		}
	}()
	for i := range 40 {
		require.EqualValues(t, i+1, other.next().Seq, "others are not affected")
	}
	eventually(t, "the slow reader is dropped", func() bool {
		return strings.Contains(string(b.do("GET", "/metrics", "").body), "overwinter_api_streams_dropped_total 1")
	})
	require.Equal(t, "pong", other.ask(`{"type":"ping"}`).Type)
}

// TestSlowClientIsNotified checks that a slow client gets a close frame, even if its messages are
// written together.
func TestSlowClientIsNotified(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"large messages": 1 << 20, "small messages": 4 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(c *api.Config) { c.WriteTimeout = 10 * time.Second })
			id := b.store.Put(session.Running)
			for range 40 << 20 / size {
				b.store.Text(id, strings.Repeat("x", size))
			}
			s := b.socket("/api/sessions/" + id + "/ws?after=0")
			require.Equal(t, "init", s.next().Type)
			eventually(t, "a write has taken too long", func() bool { return strings.Contains(b.logs.String(), "WebSocket is slow") })
			seq := int64(0)
			for {
				_, data, err := s.conn.Read(t.Context())
				if err != nil {
					require.Equal(t, websocket.StatusTryAgainLater, websocket.CloseStatus(err), "%v", err)
					break
				}
				var m struct{ Seq int64 }
				require.NoError(t, json.Unmarshal(data, &m))
				require.Equal(t, seq+1, m.Seq)
				seq = m.Seq
			}
			require.Positive(t, seq, "events written before the delay")
		})
	}
}

// TestUnreadingClientOfManyMessagesIsDisconnected checks a client to which no more data can be
// written.
func TestUnreadingClientOfManyMessagesIsDisconnected(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.WriteTimeout = time.Second })
	id := b.store.Put(session.Running)
	for range 10_000 {
		b.store.Text(id, strings.Repeat("x", 4<<10))
	}
	b.socket("/api/sessions/" + id + "/ws?after=0")
	eventually(t, "the slow reader is dropped", func() bool {
		return strings.Contains(string(b.do("GET", "/metrics", "").body), "overwinter_api_streams_dropped_total 1")
	})
	eventually(t, "it is gone", func() bool {
		return strings.Contains(string(b.do("GET", "/metrics", "").body), "overwinter_api_streams_open 0")
	})
}
