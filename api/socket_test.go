package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// payloads are the schemas of the messages of asyncapi.yaml, by the type of the message.
var payloads = sync.OnceValue(func() map[string]*jsonschema.Schema {
	data, err := os.ReadFile("asyncapi.yaml")
	if err != nil {
		panic(err)
	}
	var doc any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		panic(err)
	}
	plain, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(plain))
	if err != nil {
		panic(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("asyncapi.json", value); err != nil {
		panic(err)
	}
	out := map[string]*jsonschema.Schema{}
	for key, m := range doc.(map[string]any)["components"].(map[string]any)["messages"].(map[string]any) {
		name, ok := m.(map[string]any)["name"].(string)
		if !ok {
			name = key
		}
		out[name] = compiler.MustCompile("asyncapi.json#/components/messages/" + key + "/payload")
	}
	return out
})

// sock is a WebSocket that a test reads.
type sock struct {
	t    testing.TB
	conn *websocket.Conn
}

// said is a message from the server.
type said struct {
	Type           string
	Seq            int64
	ConversationID string
	ID, For        string
	Data           json.RawMessage
	Session        json.RawMessage
}

func (b *harness) dial(path string, header http.Header, protocols ...string) (*websocket.Conn, *http.Response, error) {
	return websocket.Dial(b.t.Context(), strings.Replace(b.url, "http", "ws", 1)+path, &websocket.DialOptions{HTTPClient: b.client, HTTPHeader: header, Subprotocols: protocols})
}

func (b *harness) socket(path string) *sock {
	b.t.Helper()
	conn, _, err := b.dial(path, b.headers) //nolint:bodyclose // the connection has it
	require.NoError(b.t, err)
	conn.SetReadLimit(32 << 20)
	b.t.Cleanup(func() { _ = conn.CloseNow() })
	return &sock{b.t, conn}
}

// refused requires that the response to a handshake is a problem.
func (b *harness) refused(path string, status int, code string, header http.Header) {
	b.t.Helper()
	conn, resp, err := b.dial(path, header) //nolint:bodyclose // it is in memory
	if err == nil {
		_ = conn.CloseNow()
	}
	require.Error(b.t, err)
	require.Equal(b.t, status, resp.StatusCode)
	var p problem
	require.NoError(b.t, json.NewDecoder(resp.Body).Decode(&p))
	require.Equal(b.t, code, p.Code)
}

// next reads a message and checks it against the document.
func (s *sock) next() said {
	s.t.Helper()
	m, err := s.read()
	require.NoError(s.t, err)
	return m
}

func (s *sock) read() (m said, err error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), waitLimit)
	defer cancel()
	kind, data, err := s.conn.Read(ctx)
	if err != nil {
		return m, err
	}
	require.Equal(s.t, websocket.MessageText, kind)
	require.NoError(s.t, json.Unmarshal(data, &m))
	schema := payloads()[m.Type]
	require.NotNil(s.t, schema, "%s is not in the document", m.Type)
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	require.NoError(s.t, err)
	require.NoError(s.t, schema.Validate(value), "%s", data)
	return m, nil
}

// brief reads n messages, each as its type, and its seq if it has one.
func (s *sock) brief(n int) []string {
	s.t.Helper()
	var out []string
	for range n {
		m := s.next()
		if m.Seq > 0 && !strings.HasSuffix(m.Type, "init") {
			m.Type = fmt.Sprintf("%d %s", m.Seq, m.Type)
		}
		out = append(out, m.Type)
	}
	return out
}

// closed reads to the end of the connection and returns its close code.
func (s *sock) closed() websocket.StatusCode {
	s.t.Helper()
	for {
		if _, err := s.read(); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

func (s *sock) send(text string) {
	s.t.Helper()
	require.NoError(s.t, s.conn.Write(s.t.Context(), websocket.MessageText, []byte(text)))
}

// ask sends a request and returns its answer. It skips events that arrive before the answer.
func (s *sock) ask(text string) said {
	s.t.Helper()
	s.send(text)
	for {
		if m := s.next(); m.Seq == 0 && m.Type != "caught_up" && m.Type != "question" {
			return m
		}
	}
}

// refusal sends a request and returns the code and the message of the error.
func (s *sock) refusal(text string) (code, message string, m said) {
	s.t.Helper()
	m = s.ask(text)
	require.Equal(s.t, "error", m.Type, "%s", m.Data)
	var p struct{ Code, Message string }
	require.NoError(s.t, json.Unmarshal(m.Data, &p))
	return p.Code, p.Message, m
}

func block(id string, kind conversation.BlockType, text string) conversation.Block {
	return conversation.Block{ID: id, Type: kind, Status: conversation.Complete, CreatedAt: time.Now(), Content: text}
}

func TestSocketBeginsWithSessionAndFollows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running, func(s *session.Session) {
		s.Agent, s.Title = "other", "Ä"
		s.Sandbox = &session.SandboxView{SandboxID: "sb-1", Status: session.SandboxReady}
	})
	asked := question.Question{ID: session.NewID(session.QuestionPrefix), SessionID: id, Status: question.Open, ExpiresAt: time.Now().Add(time.Hour), Asked: question.Asked{Kind: question.Permission, Title: "Run ls?"}}
	b.store.With(id, func(r *apitest.Row) {
		r.Prompts = []session.Prompt{{ID: "p", SessionID: id, Ordinal: 1, Status: session.PromptProcessing}, {ID: "q", SessionID: id, Ordinal: 2, Status: session.PromptQueued}}
		r.Questions = []question.Question{asked}
		user := block("u", conversation.UserMessage, "hi")
		user.Author = "ada"
		r.Conversation = conversation.Conversation{Threads: []conversation.Thread{{ID: conversation.Main, Blocks: []conversation.Block{user}}}}
		b.store.Append(r, "block_complete", conversation.BlockComplete{Block: user})
	})
	s := b.socket("/api/sessions/" + id + "/ws?role=client")
	first := s.next()
	require.Equal(t, "init", first.Type)
	require.EqualValues(t, 1, first.Seq)
	var view struct {
		resource.SessionJSON
		Messages []struct{ ID, Role, Content, AuthorName string }
	}
	require.NoError(t, json.Unmarshal(first.Session, &view))
	require.Equal(t, id, view.ID)
	require.Equal(t, "Ä", view.Title)
	require.Equal(t, []struct{ ID, Role, Content, AuthorName string }{{"u", "user", "hi", "ada"}}, view.Messages)
	require.JSONEq(t, `{"sandboxRunning":true,"runnerConnected":true,"runnerBusy":true,"promptsQueued":1,"connectedClients":1,"connectedUsers":[],"availableModels":["m1"]}`, string(first.Data))
	pending := s.next()
	require.Equal(t, "question", pending.Type)
	require.Zero(t, pending.Seq)
	require.Contains(t, string(pending.Data), asked.ID)
	require.Equal(t, []string{"caught_up"}, s.brief(1))

	b.store.Text(id, "a < b & c\n\u2028")
	live := s.next()
	require.Equal(t, "chunk", live.Type)
	require.EqualValues(t, 2, live.Seq)
	require.JSONEq(t, `{"messageId":"b1","content":"a < b & c\n\u2028"}`, string(live.Data))
	b.store.Status(id, session.Hibernated)
	require.Equal(t, []string{"3 status"}, s.brief(1))

	again := b.socket("/api/sessions/" + id + "/ws?after=1")
	resumed := again.next()
	require.NotContains(t, string(resumed.Session), "messages\":[")
	require.Contains(t, string(resumed.Data), `"connectedClients":2`)
	require.Equal(t, []string{"question", "2 chunk", "3 status", "caught_up"}, again.brief(4))
	latest := b.socket("/api/sessions/" + id + "/ws?after=latest")
	require.Equal(t, []string{"init", "question", "caught_up"}, latest.brief(3))
}

func TestSocketPagesLongHistory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	b.store.With(id, func(r *apitest.Row) {
		var blocks []conversation.Block
		for i := range 2500 {
			blocks = append(blocks, block(fmt.Sprint(i), conversation.AssistantText, "x"))
		}
		r.Conversation = conversation.Conversation{Threads: []conversation.Thread{{ID: conversation.Main, Blocks: blocks}}}
	})
	s := b.socket("/api/sessions/" + id + "/ws")
	n := 0
	for more := true; more; {
		var page struct {
			Messages []struct{ ID string }
			More     bool
		}
		m := s.next()
		if m.Type == "init" {
			require.NoError(t, json.Unmarshal(m.Session, &page))
		} else {
			require.Equal(t, "messages", m.Type)
			require.NoError(t, json.Unmarshal(m.Data, &page))
		}
		for _, said := range page.Messages {
			require.Equal(t, fmt.Sprint(n), said.ID)
			n++
		}
		more = page.More
	}
	require.Equal(t, 2500, n)
	require.Equal(t, []string{"caught_up"}, s.brief(1))
}

func TestSocketReportsCloseReason(t *testing.T) {
	t.Parallel()
	t.Run("Over", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id := b.store.Put(session.Running)
		s := b.socket("/api/sessions/" + id + "/ws")
		require.Equal(t, []string{"init", "caught_up"}, s.brief(2))
		b.store.Status(id, session.Terminated)
		require.Equal(t, []string{"1 status", "end"}, s.brief(2))
		require.Equal(t, websocket.StatusNormalClosure, s.closed())
	})
	t.Run("Stop", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		s := b.socket("/api/sessions/" + b.store.Put(session.Running) + "/ws")
		require.Equal(t, []string{"init", "caught_up"}, s.brief(2))
		stopped := make(chan error, 1)
		go func() { stopped <- b.stop() }()
		require.Equal(t, websocket.StatusGoingAway, s.closed())
		require.NoError(t, <-stopped)
	})
	t.Run("Gone", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id := b.store.Put(session.Running)
		for range 5 {
			b.store.Text(id, "x")
		}
		b.store.Forget(id, 4)
		s := b.socket("/api/sessions/" + id + "/ws?after=1")
		m := s.next()
		require.Equal(t, "error", m.Type)
		require.Contains(t, string(m.Data), "position_gone")
		require.Equal(t, websocket.StatusCode(4410), s.closed())
		require.Equal(t, []string{"init", "4 chunk", "5 chunk", "caught_up"}, b.socket("/api/sessions/"+id+"/ws?after=3").brief(4))
	})
	t.Run("Gap", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id := b.store.Put(session.Running)
		s := b.socket("/api/sessions/" + id + "/ws")
		require.Equal(t, []string{"init", "caught_up"}, s.brief(2))
		b.store.With(id, func(r *apitest.Row) {
			for range 5 {
				b.store.Append(r, "title", conversation.Title{Title: "t"})
			}
			r.Events, r.First = r.Events[3:], 4
		})
		m := s.next()
		require.Equal(t, "gap", m.Type)
		require.JSONEq(t, `{"from":1,"to":3}`, string(m.Data))
		require.Equal(t, []string{"4 title", "5 title"}, s.brief(2))
	})
	t.Run("Deleted", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id := b.store.Put(session.Running)
		s := b.socket("/api/sessions/" + id + "/ws")
		require.Equal(t, []string{"init", "caught_up"}, s.brief(2))
		b.store.Fail("Next", failure.Errorf(failure.NoSession, "there is no such session"))
		b.store.With(id, func(r *apitest.Row) { b.store.Append(r, "title", conversation.Title{}) })
		require.Equal(t, websocket.StatusCode(4404), s.closed())
	})
}

func TestSocketExecutesRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	asked := session.NewID(session.QuestionPrefix)
	b.store.With(id, func(r *apitest.Row) {
		r.Questions = []question.Question{{ID: asked, SessionID: id, Status: question.Open, ExpiresAt: time.Now().Add(time.Hour), Asked: question.Asked{Kind: question.Permission, Title: "Run ls?"}}}
	})
	s := b.socket("/api/sessions/" + id + "/ws")
	require.Equal(t, []string{"init", "question", "caught_up"}, s.brief(3))
	done := s.ask(`{"type":"prompt","id":"1","promptId":"mine","content":"hi"}`)
	require.Equal(t, "ack", done.Type, "%s", done.Data)
	require.Equal(t, "1", done.ID)
	require.Equal(t, "prompt", done.For)
	var ack struct {
		Status    int
		RequestID string
		Result    json.RawMessage
	}
	require.NoError(t, json.Unmarshal(done.Data, &ack))
	require.Equal(t, http.StatusAccepted, ack.Status)
	require.Contains(t, string(ack.Result), `"id":"mine"`)
	require.Equal(t, "hi", b.store.Row(id).Prompts[0].Content)
	require.Equal(t, ack.RequestID, b.store.Row(id).Prompts[0].RequestID)
	require.Contains(t, strings.Join(b.temp.TakeCalls(), "\n"), "mine", "the workflow is signalled")
	require.Contains(t, string(s.ask(`{"type":"prompt","promptId":"mine","content":"hi"}`).Data), `"status":200`, "sent again")
	code, message, m := s.refusal(`{"type":"prompt","id":"x","promptId":"mine","content":"other"}`)
	require.Equal(t, []string{"prompt_conflict", "x", "prompt"}, []string{code, m.ID, m.For})
	require.NotEmpty(t, message)

	done = s.ask(`{"type":"answer","questionId":"` + asked + `","answer":"once"}`)
	require.Equal(t, "ack", done.Type, "%s", done.Data)
	require.Equal(t, question.Answered, b.store.Row(id).Questions[0].Status)
	code, _, _ = s.refusal(`{"type":"answer","questionId":"` + asked + `","answer":"reject"}`)
	require.Equal(t, "question_answered", code)
	require.Equal(t, "ack", s.ask(`{"type":"hold","reason":"a look"}`).Type)
	require.Equal(t, "a look", b.store.Row(id).Session.Queue.Hold.Reason)
	require.Equal(t, "ack", s.ask(`{"type":"replace","promptId":"mine","content":"hello"}`).Type)
	require.Equal(t, "hello", b.store.Row(id).Prompts[0].Content)
	require.Equal(t, "ack", s.ask(`{"type":"promote","promptId":"mine"}`).Type)
	require.Equal(t, "ack", s.ask(`{"type":"release"}`).Type)
	require.False(t, b.store.Row(id).Session.Queue.Hold.Held())
	require.Equal(t, "ack", s.ask(`{"type":"withdraw","promptId":"mine"}`).Type)
	require.Equal(t, session.PromptCancelled, b.store.Row(id).Prompts[0].Status)
	require.Equal(t, "ack", s.ask(`{"type":"prompt","promptId":"second","content":"hi"}`).Type)
	require.Equal(t, "ack", s.ask(`{"type":"clear"}`).Type)
	require.Equal(t, session.PromptCancelled, b.store.Row(id).Prompts[1].Status)
	code, _, _ = s.refusal(`{"type":"retry","promptId":"mine"}`)
	require.Equal(t, "prompt_not_unknown", code)
	code, _, _ = s.refusal(`{"type":"abort","runId":"run_00000000000000000000000000000000"}`)
	require.Equal(t, "run_not_found", code)
	require.Equal(t, "ack", s.ask(`{"type":"abort"}`).Type)
	code, _, _ = s.refusal(`{"type":"revert","promptId":"none"}`)
	require.Equal(t, "prompt_not_found", code)
	diff := s.ask(`{"type":"diff","id":"d"}`)
	require.Equal(t, []string{"diff", "d"}, []string{diff.Type, diff.ID})
	require.JSONEq(t, `{"workspace":null,"reported":null,"pullRequest":null}`, string(s.ask(`{"type":"git-state"}`).Data))
	require.JSONEq(t, `{"files":[],"filesChanged":0,"additions":0,"deletions":0,"truncated":false,"computedAt":null}`, string(s.ask(`{"type":"files-changed"}`).Data))
	b.store.With(id, func(r *apitest.Row) {
		r.Diff = &workspacefile.Diff{
			Base: "c0ffee", Files: []workspacefile.Delta{{Path: "a", Change: workspacefile.Modified, Additions: 1}}, Additions: 1, FilesChanged: 1,
			Git: &workspacefile.GitState{Branch: "fix", Dirty: true}, Patch: []byte("the patch"), At: time.UnixMilli(1000),
		}
	})
	require.JSONEq(t, `{"workspace":{"branch":"fix","dirty":true,"base":"c0ffee","computedAt":"1970-01-01T00:00:01.000Z"},"reported":null,"pullRequest":null}`,
		string(s.ask(`{"type":"git-state"}`).Data))
	require.JSONEq(t, `{"files":[{"path":"a","change":"modified","additions":1,"deletions":0}],"filesChanged":1,"additions":1,"deletions":0,"truncated":false,
		"computedAt":"1970-01-01T00:00:01.000Z"}`, string(s.ask(`{"type":"files-changed"}`).Data))
	review := s.ask(`{"type":"review","promptId":"look","instructions":"mind the tests"}`)
	require.Equal(t, "ack", review.Type)
	require.Contains(t, string(review.Data), `"id":"look"`)
	require.Contains(t, b.store.Row(id).Prompts[len(b.store.Row(id).Prompts)-1].Content, "mind the tests")
	pong := s.ask(`{"type":"ping","id":"p"}`)
	require.Equal(t, []string{"pong", "p"}, []string{pong.Type, pong.ID})
}

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

// This is the same session in the sub-protocol with the names of blocks.
func TestSocketSendsBlockEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	b.store.With(id, func(r *apitest.Row) {
		r.Questions = []question.Question{{ID: session.NewID(session.QuestionPrefix), SessionID: id, Status: question.Open, ExpiresAt: time.Now().Add(time.Hour)}}
		r.Conversation = conversation.Conversation{Threads: []conversation.Thread{
			{ID: conversation.Main, Blocks: []conversation.Block{block("u", conversation.UserMessage, "hi")}},
			{ID: "sub", Blocks: []conversation.Block{block("v", conversation.AssistantText, "ho")}},
		}}
	})
	s := &sock{t: t}
	connect := func(query string) {
		conn, _, err := websocket.Dial(t.Context(), b.url+"/api/sessions/"+id+"/ws"+query, &websocket.DialOptions{ //nolint:bodyclose // the connection has it
			HTTPClient: b.client, Subprotocols: []string{"chat", "overwinter.blocks.v1"},
		})
		require.NoError(t, err)
		require.Equal(t, "overwinter.blocks.v1", conn.Subprotocol())
		t.Cleanup(func() { _ = conn.CloseNow() })
		s.conn = conn
	}
	connect("")
	first := s.next()
	require.Equal(t, "session:init", first.Type)
	var data struct {
		SessionID string
		Session   resource.SessionJSON
		Blocks    []conversation.Block
		Subagents []conversation.Thread
	}
	require.NoError(t, json.Unmarshal(first.Data, &data))
	require.Equal(t, id, data.SessionID)
	require.Equal(t, id, data.Session.ID)
	require.Equal(t, "u", data.Blocks[0].ID)
	require.Equal(t, []string{"sub", "v"}, []string{data.Subagents[0].ID, data.Subagents[0].Blocks[0].ID})
	require.Equal(t, []string{"session:question", "caught_up"}, s.brief(2))
	agent := block("s", conversation.Subagent, "")
	for _, e := range []struct {
		kind string
		data any
	}{
		{"status", event.StatusData{Status: session.Running, Sandbox: &resource.SandboxJSON{}}},
		{"block_start", conversation.BlockStart{Block: agent}},
		{"block_update", conversation.BlockUpdate{BlockID: "s"}},
		{"block_complete", conversation.BlockComplete{Block: agent}},
		{"text_delta", conversation.TextDelta{BlockID: "t"}},
		{"block_removed", conversation.BlockRemoved{BlockID: "t"}},
		{"file", event.FileData{Path: "a", Change: workspacefile.Created}},
		{"file", event.FileData{Path: "a", Change: workspacefile.Modified}},
		{"file", event.FileData{Path: "a", Change: workspacefile.Deleted}},
		{"title", conversation.Title{}},
		{"metadata_update", conversation.MetadataUpdate{}},
		{"settings", event.SettingsData{}},
		{"question", event.QuestionData{}},
		{"question_resolved", event.QuestionResolvedData{}},
		{"error", conversation.Problem{}},
		{"turn_end", event.TurnEndData{}},
	} {
		b.store.With(id, func(r *apitest.Row) { b.store.Append(r, e.kind, e.data) })
	}
	want := []string{
		"1 session:status", "session:subagent:discovered", "2 session:block:start", "3 session:block:update", "session:subagent:completed", "4 session:block:complete",
		"5 session:block:delta", "6 session:block:removed", "7 session:file:created", "8 session:file:modified", "9 session:file:deleted",
		"10 session:metadata:update", "11 session:metadata:update", "12 session:options:update", "13 session:question", "14 session:question:resolved", "15 error", "16 session:event",
	}
	require.Equal(t, want, s.brief(len(want)))
	require.Equal(t, "pong", s.ask(`{"type":"ping"}`).Type)
	connect("?after=14")
	require.NotContains(t, string(s.next().Data), `"blocks"`)
	require.Equal(t, []string{"session:question", "15 error", "16 session:event", "caught_up"}, s.brief(4))
}

func TestSocketReportsPresence(t *testing.T) {
	t.Parallel()
	b := setup(t, api.ReadPresence(5*time.Millisecond))
	id := b.store.Put(session.Running)
	path := "/api/sessions/" + id + "/ws"
	ada := b.socket(path + "?userId=ada&name=Ada%20L.")
	require.Contains(t, string(ada.next().Data), `"connectedClients":1,"connectedUsers":[{"userId":"ada","name":"Ada L."}]`)
	require.Equal(t, []string{"caught_up"}, ada.brief(1))
	bob := b.socket(path + "?userId=bob")
	require.Contains(t, string(bob.next().Data), `"connectedClients":2,"connectedUsers":[{"userId":"ada","name":"Ada L."},{"userId":"bob","name":"bob"}]`)
	m := ada.next()
	require.Equal(t, "user.joined", m.Type)
	require.Contains(t, string(m.Data), `"user":{"userId":"bob","name":"bob"},"connectedClients":2`)
	again := b.socket(path + "?userId=bob")
	require.Contains(t, string(again.next().Data), `"connectedClients":3`)
	silent := b.socket(path)
	require.Contains(t, string(silent.next().Data), `"connectedClients":4`)
	require.NoError(t, bob.conn.Close(websocket.StatusNormalClosure, ""))
	require.NoError(t, silent.conn.Close(websocket.StatusNormalClosure, ""))
	require.NoError(t, again.conn.Close(websocket.StatusNormalClosure, ""))
	m = ada.next()
	require.Equal(t, "user.left", m.Type, "%s", m.Data)
	require.Contains(t, string(m.Data), `"user":{"userId":"bob","name":"bob"}`)
	for _, query := range []string{"?name=x", "?userId=a%20b", "?userId=" + strings.Repeat("x", 129), "?userId=a&name=" + strings.Repeat("x", 201), "?userId=a&name=%07"} {
		b.refused(path+query, http.StatusBadRequest, "invalid_request", nil)
	}
	b.store.Fail("PresenceRenew", failure.Errorf(failure.Unavailable, "down"))
	b.store.Fail("PresenceRead", failure.Errorf(failure.Unavailable, "down"))
	eve := b.socket(path + "?userId=eve")
	require.Contains(t, string(eve.next().Data), `{"userId":"eve","name":"eve"}`, "presence refuses no client")
	require.Equal(t, []string{"caught_up"}, eve.brief(1))
}

func TestSocketTakesStreamToken(t *testing.T) {
	t.Parallel()
	b := setupTokens(t, 'a')
	id := b.store.Put(session.Running)
	b.store.With(id, func(r *apitest.Row) {
		r.Questions = []question.Question{{ID: session.NewID(session.QuestionPrefix), SessionID: id, Status: question.Open, ExpiresAt: time.Now().Add(time.Hour)}}
	})
	path := "/api/sessions/" + id + "/ws?token="
	s := b.socket(path + b.streamToken(id))
	require.Equal(t, []string{"init", "question", "caught_up"}, s.brief(3))
	code, _, _ := s.refusal(`{"type":"prompt","content":"hi"}`)
	require.Equal(t, "unauthorized", code)
	require.Empty(t, b.store.Row(id).Prompts)
	require.Equal(t, "pong", s.ask(`{"type":"ping"}`).Type)
	b.expiring(id, func(token string) bool {
		conn, _, err := b.dial(path+token, nil) //nolint:bodyclose // the connection has it
		if err != nil {
			return false
		}
		t.Cleanup(func() { _ = conn.CloseNow() })
		require.Equal(t, websocket.StatusCode(4401), (&sock{t, conn}).closed())
		return true
	})
	b.refused(path+b.streamToken(b.store.Put(session.Running)), http.StatusUnauthorized, "unauthorized", nil)
	b.refused("/api/ws?token="+b.streamToken(id), http.StatusUnauthorized, "unauthorized", nil)
}

func TestSocketReportsChangedSessions(t *testing.T) {
	t.Parallel()
	b := setup(t, api.ReadPresence(5*time.Millisecond))
	s := b.socket("/api/ws")
	happened := func(ids ...string) {
		for _, id := range ids {
			b.store.Happened(lifecycle.Event{Type: lifecycle.SessionRunning, Session: lifecycle.Subject{ID: id}})
		}
	}
	type changes struct {
		SessionIDs []string
		All        bool
	}
	changed := func() (c changes) {
		m := s.next()
		require.Equal(t, "sessions:changed", m.Type)
		require.NoError(t, json.Unmarshal(m.Data, &c))
		return c
	}
	c := changed()
	require.True(t, c.All)
	for !slices.Contains(c.SessionIDs, "ses_0") { // until the server knows its read position
		happened("ses_0")
		c = changed()
	}
	away := func(err error) { b.store.Fail("LifecycleRead", err) }
	away(failure.Errorf(failure.Unavailable, "down"))
	happened("ses_b", "ses_a", "ses_b")
	away(nil)
	for c = changed(); !slices.Contains(c.SessionIDs, "ses_a"); c = changed() {
		require.Equal(t, []string{"ses_0"}, c.SessionIDs, "what was on its way")
	}
	require.Subset(t, c.SessionIDs, []string{"ses_a", "ses_b"})
	require.LessOrEqual(t, len(c.SessionIDs), 3)
	require.False(t, c.All)
	away(failure.Errorf(failure.Unavailable, "down"))
	for i := range 1200 {
		happened(fmt.Sprint(i))
	}
	away(nil)
	for !c.All {
		c = changed()
		require.LessOrEqual(t, len(c.SessionIDs), 100)
	}
	require.Equal(t, "pong", func() string {
		s.send(`{"type":"ping"}`)
		for {
			if m := s.next(); m.Type != "sessions:changed" {
				return m.Type
			}
		}
	}())
	c.All = false
	b.store.Fail("LifecycleRead", failure.Errorf(failure.PositionGone, "gone"))
	for !c.All {
		c = changed()
	}
	b.store.Fail("LifecycleRead", nil)
	for c.SessionIDs = nil; !slices.Contains(c.SessionIDs, "ses_c"); c = changed() { // until the server knows its read position again
		happened("ses_c")
	}
	code, message, _ := s.refusal(`{"type":"prompt","content":"hi"}`)
	require.Equal(t, "invalid_request", code)
	require.Contains(t, message, "type must be ping")
	b.refused("/api/ws", http.StatusForbidden, "forbidden", http.Header{"Origin": {"https://evil.example"}})
	b.refused("/api/ws?x=1", http.StatusBadRequest, "invalid_request", nil)
	stopped := make(chan error, 1)
	go func() { stopped <- b.stop() }()
	require.Equal(t, websocket.StatusGoingAway, s.closed())
	require.NoError(t, <-stopped)
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
