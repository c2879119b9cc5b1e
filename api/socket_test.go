package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

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
