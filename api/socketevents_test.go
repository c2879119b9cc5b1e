package api_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// eventSocket opens a WebSocket of the sub-protocol with events.
func (b *harness) eventSocket(path string) *websocket.Conn {
	b.t.Helper()
	conn, _, err := b.dial(path, nil, "another", "overwinter.events.v1") //nolint:bodyclose // the connection has it
	require.NoError(b.t, err)
	require.Equal(b.t, "overwinter.events.v1", conn.Subprotocol())
	b.t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

// lines reads n messages.
func lines(t *testing.T, conn *websocket.Conn, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	out := make([]string, n)
	for i := range out {
		_, data, err := conn.Read(ctx)
		require.NoError(t, err, "after %v", out[:i])
		out[i] = string(data)
	}
	return out
}

// The sub-protocol of events sends the same bytes as server-sent events, from the first event or
// after a position.
func TestSocketOfEventsHasThoseOfStream(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	b.store.With(id, func(r *apitest.Row) {
		r.Questions = []question.Question{{ID: session.NewID(session.QuestionPrefix), SessionID: id, Status: question.Open, ExpiresAt: time.Now().Add(time.Hour)}}
		b.store.Append(r, "title", conversation.Title{Title: "a < b & c\n\u2028 \"ü\""})
		b.store.Append(r, "error", conversation.Problem{Message: "a fault"})
		b.store.Append(r, "block_start", conversation.BlockStart{Block: block("s", conversation.Subagent, "")})
	})
	stream := b.stream("/api/sessions/" + id + "/events")
	var want []string
	for range 3 {
		f, ok := stream.next()
		require.True(t, ok)
		want = append(want, f.data)
	}
	path := "/api/sessions/" + id + "/ws"
	conn := b.eventSocket(path)
	require.Equal(t, append(want, `{"type":"caught_up","data":{"seq":3}}`), lines(t, conn, 4), "neither an opening nor open questions")
	require.Equal(t, []string{want[2], `{"type":"caught_up","data":{"seq":3}}`}, lines(t, b.eventSocket(path+"?after=2"), 2))
	latest := b.eventSocket(path + "?after=latest")
	require.Equal(t, []string{`{"type":"caught_up","data":{"seq":3}}`}, lines(t, latest, 1))
	require.NoError(t, conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"ping","id":"1"}`)))
	require.Equal(t, []string{`{"type":"pong","id":"1","for":"ping"}`}, lines(t, conn, 1))
	b.store.Status(id, session.Terminated)
	for _, c := range []*websocket.Conn{conn, latest} {
		got := lines(t, c, 2)
		require.Contains(t, got[0], `{"seq":4,"type":"status","sessionId":"`+id+`"`)
		require.JSONEq(t, `{"type":"end","data":{}}`, got[1])
		_, _, err := c.Read(t.Context())
		require.Equal(t, websocket.StatusNormalClosure, websocket.CloseStatus(err))
	}
}

func TestSocketOfEventsReportsGapsAndBeats(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.Heartbeat = 500 * time.Millisecond })
	id := b.store.Put(session.Running)
	conn := b.eventSocket("/api/sessions/" + id + "/ws")
	require.Equal(t, []string{`{"type":"caught_up","data":{"seq":0}}`}, lines(t, conn, 1))
	const beat = `{"type":"heartbeat","data":{}}`
	require.Equal(t, []string{beat, beat}, lines(t, conn, 2))
	b.store.With(id, func(r *apitest.Row) {
		for range 5 {
			b.store.Append(r, "title", conversation.Title{Title: "t"})
		}
		r.Events, r.First = r.Events[3:], 4
	})
	var got []string
	for len(got) < 3 {
		if m := lines(t, conn, 1)[0]; m != beat {
			got = append(got, m)
		}
	}
	require.JSONEq(t, `{"type":"gap","data":{"from":1,"to":3}}`, got[0])
	require.Contains(t, got[1]+got[2], `{"seq":5,"type":"title"`)
}

func TestSocketOfEventsTakesStreamToken(t *testing.T) {
	t.Parallel()
	b := setupTokens(t, 'a')
	id := b.store.Put(session.Running)
	b.store.Text(id, "x")
	path := "/api/sessions/" + id + "/ws?token="
	require.Contains(t, lines(t, b.eventSocket(path+b.streamToken(id)), 1)[0], `{"seq":1,`)
	b.refused(path+b.streamToken(b.store.Put(session.Running)), http.StatusUnauthorized, "unauthorized", nil)
	b.expiring(id, func(token string) bool {
		short, _, err := b.dial(path+token, nil, "overwinter.events.v1") //nolint:bodyclose // the connection has it
		if err != nil {
			return false
		}
		t.Cleanup(func() { _ = short.CloseNow() })
		for err == nil {
			_, _, err = short.Read(t.Context())
		}
		require.Equal(t, websocket.StatusCode(4401), websocket.CloseStatus(err))
		return true
	})
}
