package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestPromptIsStoredThenSignalled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Hibernated)
	a := b.do("POST", "/api/sessions/"+id+"/prompts", `{"content":"hello","onUnknown":"retry"}`)
	require.Equal(t, http.StatusAccepted, a.status, "%s", a.body)
	got := a.accepted()
	require.EqualValues(t, 1, got.Position)
	require.Equal(t, session.PromptQueued, got.Prompt.Status)
	require.Equal(t, session.Followup, got.Prompt.Mode)
	require.Equal(t, session.Retry, got.Prompt.OnUnknown)
	require.True(t, strings.HasPrefix(got.Prompt.ID, "prm_"), got.Prompt.ID)
	require.Equal(t, "/api/sessions/"+id+"/prompts/"+got.Prompt.ID, a.header.Get("Location"))
	require.Equal(t, []string{"prompt " + id + " " + got.Prompt.ID + " 1"}, b.temp.TakeCalls())

	var shown resource.PromptJSON
	b.do("GET", "/api/sessions/"+id+"/prompts/"+got.Prompt.ID, "").into(&shown)
	require.Equal(t, got.Prompt, shown)
}

func TestRepeatedPrompt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	path := "/api/sessions/" + id + "/prompts"
	require.Equal(t, http.StatusAccepted, b.do("POST", path, `{"content":"x","id":"mine-1"}`).status)
	b.temp.TakeCalls()

	again := b.do("POST", path, `{"id":"mine-1","content":"x"}`)
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, []string{"prompt " + id + " mine-1 1"}, b.temp.TakeCalls(), "still queued: the first signal may have been lost")

	b.store.Prompt(id, "mine-1", session.PromptCompleted)
	again = b.do("POST", path, `{"id":"mine-1","content":"x"}`)
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, session.PromptCompleted, again.accepted().Prompt.Status, "its present state")
	require.Empty(t, b.temp.TakeCalls())

	b.do("POST", path, `{"id":"mine-1","content":"y"}`).problem(http.StatusConflict, "prompt_conflict")
	b.store.Status(id, session.Error)
	require.Contains(t, b.do("POST", path, `{"content":"late"}`).problem(http.StatusConflict, "session_in_error").Detail, "recover")
	require.Equal(t, http.StatusOK, b.do("POST", path, `{"content":"x","id":"mine-1"}`).status, "accepted before")
	b.store.Status(id, session.Terminated)
	b.do("POST", path, `{"content":"late"}`).problem(http.StatusConflict, "session_terminated")
}

func TestInvalidPromptsAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	for body, field := range map[string]string{
		``:                                 "",
		`{}`:                               "content",
		`{"content":null}`:                 "content",
		`{"content":7}`:                    "content",
		`{"content":["x"]}`:                "content",
		`{"content":""}`:                   "content",
		`{"content":"\t "}`:                "content",
		`{"content":"a\u0000b"}`:           "content",
		`{"content":"x","id":""}`:          "id",
		`{"content":"x","id":"a/b"}`:       "id",
		`{"content":"x","id":"ä"}`:         "id",
		`{"content":"x","id":5}`:           "id",
		`{"content":"x","mode":"now"}`:     "mode",
		`{"content":"x","onUnknown":"no"}`: "onUnknown",
		`{"content":"x","sessionId":"y"}`:  "sessionId",
		`{"content":"x","id":"` + strings.Repeat("i", 65) + `"}`: "id",
	} {
		p := b.do("POST", "/api/sessions/"+id+"/prompts", body).problem(http.StatusBadRequest, "invalid_request")
		if field != "" {
			require.Len(t, p.Errors, 1, body)
			require.Equal(t, field, p.Errors[0].Field, body)
		}
	}
	require.Empty(t, b.store.Row(id).Prompts)
}

func TestContentHasItsOwnBound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := "/api/sessions/" + b.store.Put(session.Running) + "/prompts"
	content := func(n int) string { return `{"content":"` + strings.Repeat("x", n) + `"}` }
	require.Equal(t, http.StatusAccepted, b.do("POST", path, content(session.MaxPromptBytes)).status)
	p := b.do("POST", path, content(session.MaxPromptBytes+1)).problem(http.StatusRequestEntityTooLarge, "too_large")
	require.Equal(t, "content", p.Errors[0].Field)
	b.do("POST", path, content(2<<20)).problem(http.StatusRequestEntityTooLarge, "too_large")
	b.do("POST", "/api/sessions", `{"agent":"demo","prompt":`+content(2<<20)+`}`).problem(http.StatusRequestEntityTooLarge, "too_large")
	b.do("POST", "/api/sessions", content(15<<20)).problem(http.StatusRequestEntityTooLarge, "too_large")
	b.do("POST", strings.TrimSuffix(path, "prompts")+"wake", strings.Repeat(" ", 2<<20)).problem(http.StatusRequestEntityTooLarge, "too_large")
}

func TestPromptAcceptsAnyText(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := "/api/sessions/" + b.store.Put(session.Running) + "/prompts"
	for _, text := range []string{"$ echo hi", "<script>&amp;</script>", "日本語 🦔", "a\nb\r\n\tc", `"quoted" \ back`, "\u2028\u200b\ufeffx", "0"} {
		body, err := json.Marshal(map[string]string{"content": text})
		require.NoError(t, err)
		require.Equal(t, text, b.do("POST", path, string(body)).accepted().Prompt.Content)
	}
}

func TestPromptIsAcceptedIfSignalFails(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.SignalTimeout = 50 * time.Millisecond })
	id := b.store.Put(session.Running)
	for _, breakIt := range []func(*apitest.Signaler){
		func(o *apitest.Signaler) { o.Err = errors.New("down") },
		func(o *apitest.Signaler) { o.Err, o.Hang = nil, true },
	} {
		b.temp.Set(breakIt)
		require.Equal(t, http.StatusAccepted, b.do("POST", "/api/sessions/"+id+"/prompts", `{"content":"x"}`).status)
	}
	require.Len(t, b.store.Row(id).Prompts, 2)
	eventually(t, "both are logged", func() bool { return strings.Count(b.logs.String(), "signal failed") == 2 })
}

func TestErrorsOfStoreAreMappedByCode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := "/api/sessions/" + b.store.Put(session.Running) + "/prompts"
	for code, status := range map[failure.Code]int{
		failure.QueueFull: 429, failure.RateLimited: 429, failure.Unavailable: 503,
		failure.Terminated: 409, failure.InError: 409, failure.Internal: 500,
	} {
		b.store.Fail("PromptSubmit", &failure.Error{Code: code, Message: "shown", Err: errors.New("never shown")})
		a := b.do("POST", path, `{"content":"x"}`)
		require.Equal(t, "shown", a.problem(status, string(code)).Detail)
		require.NotContains(t, string(a.body), "never")
		require.Equal(t, status == 429 || status == 503, a.header.Get("Retry-After") != "", code)
	}
	b.store.Fail("PromptSubmit", errors.New("secret of the database"))
	a := b.do("POST", path, `{"content":"x"}`)
	a.problem(http.StatusInternalServerError, "internal")
	require.NotContains(t, string(a.body), "secret")
	require.Contains(t, b.logs.String(), "secret of the database", "the log has the cause")

	b.store.Fail("PromptSubmit", context.DeadlineExceeded)
	b.do("POST", path, `{"content":"x"}`).problem(http.StatusServiceUnavailable, "unavailable")
	require.Empty(t, b.temp.TakeCalls())
}

func TestPromptsAreListedOldestFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	for _, prompt := range []string{"a", "b", "c"} {
		b.do("POST", "/api/sessions/"+id+"/messages", `{"content":"x","id":"`+prompt+`"}`)
	}
	type list struct {
		Items      []resource.PromptJSON
		NextCursor *string
	}
	var one, two list
	b.do("GET", "/api/sessions/"+id+"/prompts?limit=2", "").into(&one)
	require.Equal(t, "a", one.Items[0].ID)
	require.Len(t, one.Items, 2)
	b.do("GET", "/api/sessions/"+id+"/messages?cursor="+*one.NextCursor, "").into(&two)
	require.Len(t, two.Items, 1)
	require.Equal(t, "c", two.Items[0].ID)
	require.Nil(t, two.NextCursor)
	b.do("GET", "/api/sessions/"+id+"/prompts?limit=1000", "").problem(400, "invalid_request")
	b.do("GET", "/api/sessions/"+id+"/prompts?cursor=zzz", "").problem(400, "invalid_request")
}

func TestWithdraw(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	for _, prompt := range []string{"a", "b"} {
		b.do("POST", "/api/sessions/"+id+"/prompts", `{"content":"x","id":"`+prompt+`"}`)
	}
	var p resource.PromptJSON
	a := b.do("DELETE", "/api/sessions/"+id+"/prompts/a", "")
	require.Equal(t, http.StatusOK, a.status)
	a.into(&p)
	require.Equal(t, session.PromptCancelled, p.Status)
	require.Equal(t, "withdrawn", p.Reason)
	b.store.Prompt(id, "b", session.PromptProcessing)
	b.do("DELETE", "/api/sessions/"+id+"/messages/b", "").problem(http.StatusConflict, "prompt_not_queued")
}
