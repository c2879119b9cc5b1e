package api_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestSocketRejectsUnknownMessages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.socket("/api/sessions/" + b.store.Put(session.Running) + "/ws")
	require.Equal(t, []string{"init", "caught_up"}, s.brief(2))
	for _, c := range []struct{ text, code, message string }{
		{`x`, "invalid_request", "is not JSON"},
		{`[1]`, "invalid_request", "must be a JSON object"},
		{`{"type":"ping"} {}`, "invalid_request", "unexpected data"},
		{`{"type":"ping","type":"ping"}`, "invalid_request", "twice"},
		{`{}`, "invalid_request", "type is required"},
		{`{"type":7}`, "invalid_request", "type must be a string"},
		{`{"type":"ping","id":7}`, "invalid_request", "id must be a string"},
		{`{"type":"ping","id":"` + strings.Repeat("x", 65) + `"}`, "invalid_request", "id must be 1 to 64"},
		{`{"type":"sing"}`, "invalid_request", "type must be one of: abort, answer, clear, diff, dismiss, files-changed, git-state, hold, promote, prompt, release, replace, resolve, retry, revert, review, withdraw, ping"},
		{`{"type":"review","files":["a"]}`, "invalid_request", "files"},
		{`{"type":"review","promptId":"a b"}`, "invalid_request", "promptId must be 1 to 64"},
		{`{"type":"ping","x":1}`, "invalid_request", "x is not a field of this message"},
		{`{"type":"diff","x":1}`, "invalid_request", "x is not a field of this message"},
		{`{"type":"withdraw"}`, "invalid_request", "promptId is required"},
		{`{"type":"withdraw","promptId":["a"]}`, "invalid_request", "promptId must be a string"},
		{`{"type":"withdraw","promptId":"../../x"}`, "invalid_request", "promptId must be 1 to 64"},
		{`{"type":"withdraw","promptId":"a b"}`, "invalid_request", "promptId must be 1 to 64"},
		{`{"type":"answer","questionId":"que_1","answer":"once"}`, "invalid_request", "questionId must be que_"},
		{`{"type":"prompt"}`, "invalid_request", "content is required"},
		{`{"type":"prompt","content":"x","promptId":"a b"}`, "invalid_request", "promptId must be 1 to 64"},
		{`{"type":"prompt","content":"x","colour":"red"}`, "invalid_request", "colour"},
		{`{"type":"prompt","content":"` + strings.Repeat("x", session.MaxPromptBytes+1) + `"}`, "too_large", "content is"},
	} {
		code, message, _ := s.refusal(c.text)
		require.Equal(t, c.code, code, "%.100s: %s", c.text, message)
		require.Contains(t, message, c.message)
	}
	require.Equal(t, "pong", s.ask(`{"type":"ping"}`).Type, "the connection is still open")
}

func TestSocketClosesOnInvalidMessage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := "/api/sessions/" + b.store.Put(session.Running) + "/ws"
	for _, c := range []struct {
		kind websocket.MessageType
		data string
		code websocket.StatusCode
	}{
		{websocket.MessageBinary, `{"type":"ping"}`, websocket.StatusUnsupportedData},
		{websocket.MessageText, "{\"type\":\"\xff\"}", websocket.StatusInvalidFramePayloadData},
		{websocket.MessageText, `{"type":"prompt","content":"` + strings.Repeat("x", 1<<20) + `"}`, websocket.StatusMessageTooBig},
	} {
		s := b.socket(path)
		require.NoError(t, s.conn.Write(t.Context(), c.kind, []byte(c.data)))
		require.Equal(t, c.code, s.closed())
	}
}

func TestSocketRefusesFlood(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.socket("/api/sessions/" + b.store.Put(session.Running) + "/ws")
	go func() {
		for range 2000 {
			if s.conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"ping"}`)) != nil {
				return
			}
		}
	}()
	pongs, limited := 0, 0
	for {
		m, err := s.read()
		if err != nil {
			require.Equal(t, websocket.StatusPolicyViolation, websocket.CloseStatus(err))
			break
		}
		switch m.Type {
		case "pong":
			pongs++
		case "error":
			require.Contains(t, string(m.Data), "rate_limited")
			limited++
		}
	}
	require.GreaterOrEqual(t, pongs, 100)
	require.GreaterOrEqual(t, limited, 100)
}

func TestHandshakesAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	path := "/api/sessions/" + id + "/ws"
	b.refused("/api/sessions/"+session.NewID(session.SessionPrefix)+"/ws", http.StatusNotFound, "session_not_found", nil)
	b.refused(path+"?role=runner", http.StatusBadRequest, "invalid_request", nil)
	b.refused(path+"?after=x", http.StatusBadRequest, "invalid_request", nil)
	b.refused(path+"?after=7", http.StatusBadRequest, "invalid_request", nil)
	b.refused(path+"?afetr=7", http.StatusBadRequest, "invalid_request", nil)
	b.refused(path, http.StatusForbidden, "forbidden", http.Header{"Origin": {"https://evil.example"}})
	b.refused(path, http.StatusForbidden, "forbidden", http.Header{"Origin": {"null"}})
	b.refused(path, http.StatusForbidden, "forbidden", http.Header{"Sec-Fetch-Site": {"cross-site"}})
	b.do("GET", path, "").problem(http.StatusBadRequest, "invalid_request")
	conn, _, err := b.dial(path, http.Header{"Origin": {b.url}}) //nolint:bodyclose // the connection has it
	require.NoError(t, err)
	require.NoError(t, conn.CloseNow())
	b.store.Fail("ConversationPage", failure.Errorf(failure.Unavailable, "down"))
	b.refused(path, http.StatusServiceUnavailable, "unavailable", nil)
	require.Eventually(t, func() bool { return b.store.OpenReaders() == 0 }, waitLimit, time.Millisecond)
}

func TestSocketNeedsKey(t *testing.T) {
	t.Parallel()
	const key = "0123456789abcdefghij"
	b := setup(t, func(c *api.Config) { c.Key = secret.NewValue(key) }, api.WithoutKeyDelay)
	id := b.store.Put(session.Running)
	path := "/api/sessions/" + id + "/ws"
	b.refused(path, http.StatusUnauthorized, "unauthorized", nil)
	b.refused(path, http.StatusUnauthorized, "unauthorized", http.Header{"Authorization": {"Bearer " + key + "x"}})
	b.headers.Set("Authorization", "Bearer "+key)
	s := b.socket(path)
	require.Equal(t, "init", s.next().Type)
	require.Equal(t, "ack", s.ask(`{"type":"prompt","content":"hi"}`).Type)
}

func TestSocketsOfSessionAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.MaxConnections = 8 })
	path := "/api/sessions/" + b.store.Put(session.Running) + "/ws"
	var open []*sock
	for range 6 { // three quarters
		open = append(open, b.socket(path))
	}
	b.refused(path, http.StatusServiceUnavailable, "unavailable", nil)
	require.NoError(t, open[0].conn.Close(websocket.StatusNormalClosure, ""))
	eventually(t, "there is room again", func() bool {
		conn, _, err := b.dial(path, nil) //nolint:bodyclose // the library has closed it
		if err == nil {
			_ = conn.CloseNow()
		}
		return err == nil
	})
	for range 3 {
		require.Equal(t, http.StatusOK, b.do("GET", "/healthz", "").status, "other requests have their places")
	}
}

func TestRoomIsBoundedAndWaitsForItsMembers(t *testing.T) {
	t.Parallel()
	r := api.NewRooms(apitest.NewStore())
	var leave []func()
	for range 1000 {
		out, err := r.Enter(t.Context(), "a")
		require.NoError(t, err)
		leave = append(leave, out)
	}
	_, err := r.Enter(t.Context(), "a")
	require.Equal(t, failure.Unavailable, failure.CodeOf(err))
	require.ErrorContains(t, err, "1000 such WebSockets")
	other, err := r.Enter(t.Context(), "b")
	require.NoError(t, err)
	other()
	empty := r.Close()
	_, err = r.Enter(t.Context(), "b")
	require.ErrorContains(t, err, "stopping")
	for _, out := range leave {
		select {
		case <-empty:
			t.Error("it is not empty")
		default:
		}
		out()
	}
	<-empty
}

// FuzzSocketRequest sends malformed messages.
func FuzzSocketRequest(f *testing.F) {
	for _, seed := range []string{
		`{"type":"prompt","content":"a"}`, `{"type":"answer","questionId":"que_1"}`, `{"type":"withdraw","promptId":"../x"}`, `{"type":"ping","id":"1"}`,
		`{"type":"review"}`, `[`, `{"type":"diff","x":{}}`, `{"type":"retry","promptId":"%2e%2e/"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		method, target, body, err := api.SocketOperation(data)
		if err != nil {
			require.NotEmpty(t, failure.CodeOf(err))
			require.NotEqual(t, failure.Internal, failure.CodeOf(err), "%v", err)
			return
		}
		if method == "" {
			return // a ping
		}
		require.True(t, strings.HasPrefix(target, "/api/sessions/ses_1/"))
		req, err := http.NewRequest(method, target, bytes.NewReader(body))
		require.NoError(t, err)
		require.Empty(t, req.URL.RawQuery)
		require.Empty(t, req.URL.Fragment)
		require.NotContains(t, req.URL.EscapedPath(), "/../")
		if len(body) > 0 {
			require.True(t, json.Valid(body))
		}
	})
}
