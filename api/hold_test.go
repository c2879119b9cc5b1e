package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestQueueIsHeldAndReleased(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	post := func(what, body string) (s resource.SessionJSON) {
		t.Helper()
		a := b.do("POST", "/api/sessions/"+id+"/"+what, body)
		require.Equal(t, http.StatusOK, a.status, "%s", a.body)
		a.into(&s)
		return s
	}
	require.False(t, post("release", ``).Queue.Held, "it is not held")
	b.promptNamed(id, "p1")
	require.Equal(t, []string{"prompt " + id + " p1 1"}, b.temp.TakeCalls())

	held := post("hold", `{"reason":"I look at it"}`)
	require.True(t, held.Queue.Held)
	require.NotNil(t, held.Queue.HeldSince)
	require.Equal(t, "I look at it", held.Queue.HeldReason)
	require.EqualValues(t, 1, held.Queue.Queued)
	require.Equal(t, session.Idle, held.Doing.State)
	require.Contains(t, held.Doing.Text, "its queue is held until a release")
	require.Equal(t, held, post("hold", ``))
	require.Empty(t, b.temp.TakeCalls(), "no workflow need know of it")

	released := post("release", `{}`)
	require.False(t, released.Queue.Held)
	require.Nil(t, released.Queue.HeldSince)
	require.Equal(t, []string{"prompt " + id + " p1 1"}, b.temp.TakeCalls(), "what waits is signalled")
}

func TestReleaseNotifiesAttendant(t *testing.T) {
	t.Parallel()
	b, id := setupAttended(t, true, never, never)
	require.Equal(t, http.StatusOK, b.do("POST", "/api/sessions/"+id+"/hold", ``).status)
	b.promptNamed(id, "p1")
	require.Equal(t, http.StatusOK, b.do("POST", "/api/sessions/"+id+"/release", ``).status)
	require.Empty(t, b.temp.TakeCalls(), "the attendant has it")
}

func TestRefusedHold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, gone := b.store.Put(session.Hibernated), b.store.Put(session.Terminated)
	problem := b.do("POST", "/api/sessions/"+id+"/hold", `{"reason":"`+strings.Repeat("x", 1001)+`"}`).problem(http.StatusBadRequest, "invalid_request")
	require.Contains(t, problem.Detail+problem.Errors[0].Message, "1000")
	b.do("POST", "/api/sessions/"+id+"/hold", `{"reason":7}`).problem(http.StatusBadRequest, "invalid_request")
	b.do("POST", "/api/sessions/"+id+"/release", `{"reason":"x"}`).problem(http.StatusBadRequest, "invalid_request")
	for _, what := range []string{"hold", "release"} {
		b.do("POST", "/api/sessions/"+gone+"/"+what, ``).problem(http.StatusConflict, "session_terminated")
		b.do("POST", "/api/sessions/"+session.NewID(session.SessionPrefix)+"/"+what, ``).problem(http.StatusNotFound, "session_not_found")
	}
}

func TestQueuedPromptIsReplacedPromotedAndCleared(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	b.promptNamed(id, "p1")
	b.promptNamed(id, "p2")
	b.temp.TakeCalls()
	for _, name := range []string{"prompts", "messages"} {
		path := "/api/sessions/" + id + "/" + name + "/p2"
		var p resource.PromptJSON
		a := b.do("PUT", path, `{"content":"something else"}`)
		require.Equal(t, http.StatusOK, a.status, "%s", a.body)
		a.into(&p)
		require.Equal(t, "something else", p.Content)
		a = b.do("POST", path+"/promote", ``)
		require.Equal(t, http.StatusOK, a.status, "%s", a.body)
		a.into(&p)
		require.EqualValues(t, -1, p.Rank)
		require.EqualValues(t, 2, p.Ordinal)
		for _, body := range []string{``, `{}`, `{"content":" "}`, `{"content":"x","mode":"steer"}`} {
			b.do("PUT", path, body).problem(http.StatusBadRequest, "invalid_request")
		}
		b.do("PUT", path, `{"content":"`+strings.Repeat("x", session.MaxPromptBytes+1)+`"}`).problem(http.StatusRequestEntityTooLarge, "too_large")
		b.do("POST", path+"/promote", `{"to":1}`).problem(http.StatusBadRequest, "invalid_request")
		b.do("PUT", path+"nope", `{"content":"x"}`).problem(http.StatusNotFound, "prompt_not_found")
	}
	for _, want := range []string{`{"promptIds":["p1","p2"]}`, `{"promptIds":[]}`} {
		a := b.do("POST", "/api/sessions/"+id+"/queue/clear", ``)
		require.Equal(t, http.StatusOK, a.status)
		require.JSONEq(t, want, string(a.body))
	}
	require.Empty(t, b.temp.TakeCalls(), "no workflow need know of it")
	b.do("PUT", "/api/sessions/"+id+"/prompts/p1", `{"content":"x"}`).problem(http.StatusConflict, "prompt_not_queued")
	b.do("POST", "/api/sessions/"+id+"/prompts/p1/promote", ``).problem(http.StatusConflict, "prompt_not_queued")
	b.do("POST", "/api/sessions/"+session.NewID(session.SessionPrefix)+"/queue/clear", ``).problem(http.StatusNotFound, "session_not_found")
}
