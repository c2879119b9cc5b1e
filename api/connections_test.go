package api_test

import (
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// connect opens connections that start requests with the text and never complete them.
func (b *harness) connect(n int, text string) []net.Conn {
	b.t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
		require.NoError(b.t, err)
		b.t.Cleanup(func() { _ = conn.Close() }) // mostly closed by the server
		_, _ = conn.Write([]byte(text))          // the server may have closed it
		conns[i] = conn
	}
	return conns
}

// requireClosed waits until the server has closed the connections.
func (b *harness) requireClosed(conns []net.Conn) {
	b.t.Helper()
	for i, conn := range conns {
		require.NoError(b.t, conn.SetReadDeadline(time.Now().Add(waitLimit)))
		_, err := conn.Read(make([]byte, 1))
		require.Error(b.t, err)
		require.NotErrorIs(b.t, err, os.ErrDeadlineExceeded, "connection %d", i)
	}
}

func TestConnectionsWithoutRequestMakeRoom(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"Silent": "", "Begun": "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(c *api.Config) { c.MaxConnections, c.HeaderTimeout = 8, time.Hour }) // no other limit closes a connection
			s := b.store.Put(session.Running)
			stream := b.stream("/api/sessions/" + s + "/events")
			idle := b.connect(50, text)
			b.requireClosed(idle[:50-7]) // seven remain, including that of the stream
			require.Equal(t, http.StatusOK, b.do("GET", "/healthz", "").status)
			b.store.Text(s, "still here")
			for {
				f, ok := stream.next()
				require.True(t, ok, "a connection with a request is not closed")
				if f.event == "text_delta" {
					break
				}
			}
			require.NoError(t, stream.resp.Body.Close())
			for _, conn := range idle {
				_ = conn.Close() // the server waits for the remaining connections
			}
		})
	}
}

func TestEventStreamsLeaveRoomForRequests(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.MaxConnections = 8 })
	path := "/api/sessions/" + b.store.Put(session.Running) + "/events"
	var streams []*sse
	for range 6 {
		streams = append(streams, b.stream(path))
	}
	refused := b.do("GET", path, "")
	require.Equal(t, http.StatusServiceUnavailable, refused.status)
	require.Contains(t, string(refused.body), "6 open event streams")
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	require.Equal(t, http.StatusOK, b.do("GET", "/healthz", "").status)
	require.NoError(t, streams[0].resp.Body.Close())
	require.Eventually(t, func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+path, nil)
		require.NoError(t, err)
		resp, err := b.client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, waitLimit, 10*time.Millisecond, "a stream that has ended makes room")
}
