package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestAQueueIsHeldAndReleased(t *testing.T) {
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
	require.Equal(t, []string{"prompt " + id + " p1 1"}, b.temp.Heard())

	held := post("hold", `{"reason":"I look at it"}`)
	require.True(t, held.Queue.Held)
	require.NotNil(t, held.Queue.HeldSince)
	require.Equal(t, "I look at it", held.Queue.HeldReason)
	require.EqualValues(t, 1, held.Queue.Queued)
	require.Equal(t, session.Idle, held.Doing.State)
	require.Contains(t, held.Doing.Text, "its queue is held until a release")
	require.Equal(t, held, post("hold", ``))
	require.Empty(t, b.temp.Heard(), "no workflow need know of it")

	released := post("release", `{}`)
	require.False(t, released.Queue.Held)
	require.Nil(t, released.Queue.HeldSince)
	require.Equal(t, []string{"prompt " + id + " p1 1"}, b.temp.Heard(), "what waits is signalled")
}

func TestAReleaseNotifiesTheAttendant(t *testing.T) {
	t.Parallel()
	b, id := setupAttended(t, true, never, never)
	require.Equal(t, http.StatusOK, b.do("POST", "/api/sessions/"+id+"/hold", ``).status)
	b.promptNamed(id, "p1")
	require.Equal(t, http.StatusOK, b.do("POST", "/api/sessions/"+id+"/release", ``).status)
	require.Empty(t, b.temp.Heard(), "the attendant has it")
}

func TestAHoldThatIsRefused(t *testing.T) {
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
