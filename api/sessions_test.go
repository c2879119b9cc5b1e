package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestCreateAnswersAtOnceAndSignals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.do("POST", "/api/sessions", `{"agent":"demo"}`)
	require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
	s := a.session()
	require.Equal(t, session.Initializing, s.Status)
	require.Equal(t, "demo", s.Agent)
	require.Equal(t, resource.Duration(session.DefaultIdleTimeout), s.IdleTimeout)
	require.JSONEq(t, `{}`, string(s.Metadata))
	require.Equal(t, "/api/sessions/"+s.ID, a.header.Get("Location"))
	require.Equal(t, []string{"prompt " + s.ID + "  0"}, b.temp.TakeCalls())
	require.True(t, b.store.Row(s.ID).Session.Lazy)

	require.Equal(t, s.ID, b.do("GET", "/api/sessions/"+s.ID, "").session().ID)
}

func TestCreateAcceptsAllDocumentedFields(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.do("POST", "/api/sessions", `{"agent":"other","title":"Ä title","prompt":{"content":"hi","id":"p-1"},
		"sandbox":"eager","idleTimeout":"90s","metadata":{"k":[1,{"x":null}]},"options":{"model":"m1"}}`)
	require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
	s := a.session()
	require.Equal(t, "Ä title", s.Title)
	require.Equal(t, resource.Duration(90*time.Second), s.IdleTimeout)
	require.JSONEq(t, `{"k":[1,{"x":null}]}`, string(s.Metadata))
	require.Equal(t, "m1", s.Options.Model)
	require.EqualValues(t, 1, s.Queue.Queued)
	require.Equal(t, []string{"prompt " + s.ID + " p-1 1"}, b.temp.TakeCalls())
}

func TestSessionIsLazyUnlessPromptIsGiven(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for body, lazy := range map[string]bool{
		`{"agent":"demo"}`:                                           true,
		`{"agent":"demo","sandbox":"lazy"}`:                          true,
		`{"agent":"demo","sandbox":"eager"}`:                         false,
		`{"agent":"demo","prompt":{"content":"x"}}`:                  false,
		`{"agent":"demo","sandbox":"lazy","prompt":{"content":"x"}}`: true,
	} {
		id := b.do("POST", "/api/sessions", body).session().ID
		require.Equal(t, lazy, b.store.Row(id).Session.Lazy, body)
	}
}

func TestInvalidCreateChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	deep := strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40)
	for body, field := range map[string]string{
		``:                                    "",
		`   `:                                 "",
		`null`:                                "",
		`[]`:                                  "",
		`"x"`:                                 "",
		`{`:                                   "",
		`{"agent":"demo"`:                     "",
		`{"agent":"demo"} {}`:                 "",
		`{"agent":"demo"}x`:                   "",
		`{"agent":"demo",}`:                   "",
		"{\"agent\":\"d\xff\"}":               "",
		`{"agent":"demo","agent":"demo"}`:     "",
		`{}`:                                  "agent",
		`{"agent":5}`:                         "agent",
		`{"agent":null}`:                      "agent",
		`{"agent":"unknown"}`:                 "agent",
		`{"Agent":"demo"}`:                    "agent",
		`{"agent":"demo","colour":"red"}`:     "colour",
		`{"agent":"demo","title":5}`:          "title",
		`{"agent":"demo","title":"a\u0000b"}`: "title",
		`{"agent":"demo","title":"` + strings.Repeat("ä", 201) + `"}`:             "title",
		`{"agent":"demo","idleTimeout":"soon"}`:                                   "idleTimeout",
		`{"agent":"demo","idleTimeout":900}`:                                      "idleTimeout",
		`{"agent":"demo","idleTimeout":"10ms"}`:                                   "idleTimeout",
		`{"agent":"demo","idleTimeout":"-5m"}`:                                    "idleTimeout",
		`{"agent":"demo","idleTimeout":"1000h"}`:                                  "idleTimeout",
		`{"agent":"demo","metadata":[]}`:                                          "metadata",
		`{"agent":"demo","metadata":null}`:                                        "metadata",
		`{"agent":"demo","metadata":{"a":"\u0000"}}`:                              "metadata",
		`{"agent":"demo","metadata":{"\u0000":1}}`:                                "metadata",
		`{"agent":"demo","metadata":{"a":[1e999]}}`:                               "metadata",
		`{"agent":"demo","metadata":` + deep + `}`:                                "metadata",
		`{"agent":"demo","metadata":{"a":"` + strings.Repeat("x", 17<<10) + `"}}`: "metadata",
		`{"agent":"demo","options":{"model":5}}`:                                  "options.model",
		`{"agent":"demo","options":{"colour":5}}`:                                 "options.colour",
		`{"agent":"demo","options":"fast"}`:                                       "options",
		`{"agent":"demo","sandbox":"soon"}`:                                       "sandbox",
		`{"agent":"demo","prompt":"hi"}`:                                          "prompt",
		`{"agent":"demo","prompt":{}}`:                                            "prompt.content",
		`{"agent":"demo","prompt":{"content":""}}`:                                "prompt.content",
		`{"agent":"demo","prompt":{"content":" \n"}}`:                             "prompt.content",
		`{"agent":"demo","prompt":{"content":"a\u0000"}}`:                         "prompt.content",
		`{"agent":"demo","prompt":{"content":"x","id":"a b"}}`:                    "prompt.id",
		`{"agent":"demo","prompt":{"content":"x","mode":"followup"}}`:             "prompt.mode",
		`{"agent":"demo","profile":"prf_1"}`:                                      "profile",
		`{"agent":"demo","workspace":"https://example.com"}`:                      "workspace",
		`{"agent":"demo","workspace":{"url":"https://example.com"}}`:              "workspace.url",
		`{"agent":"demo","workspace":{"repoUrl":"ssh://example.com/x"}}`:          "workspace.repoUrl",
		`{"agent":"demo","workspace":{"repoUrl":"https://me:pw@example.com/x"}}`:  "workspace.repoUrl",
		`{"agent":"demo","workspace":{"repoUrl":"-https://example.com"}}`:         "workspace.repoUrl",
		`{"agent":"demo","workspace":{"ref":"main"}}`:                             "workspace.ref",
		`{"agent":"demo","workspace":{"repoUrl":"https://e.com/x","ref":"-x"}}`:   "workspace.ref",
		`{"agent":"demo","workspace":{"repoUrl":"https://e.com/x","ref":"a..b"}}`: "workspace.ref",
		`{"agent":"demo","workspace":{"setup":5}}`:                                "workspace.setup",
	} {
		p := b.do("POST", "/api/sessions", body).problem(http.StatusBadRequest, "invalid_request")
		if field == "" {
			require.Empty(t, p.Errors, body)
			continue
		}
		require.NotEmpty(t, p.Errors, body)
		require.Equal(t, field, p.Errors[0].Field, body)
		require.NotEmpty(t, p.Errors[0].Message)
	}
	require.Zero(t, b.store.Count())
	require.Empty(t, b.temp.TakeCalls())
}

func TestResponseNamesEveryInvalidField(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.do("POST", "/api/sessions", `{"agent":"unknown","title":1,"prompt":{"content":"","x":1},"z":1}`).problem(400, "invalid_request")
	var fields []string
	for _, e := range p.Errors {
		fields = append(fields, e.Field)
	}
	require.ElementsMatch(t, []string{"agent", "title", "prompt.content", "prompt.x", "z"}, fields)
	require.Contains(t, p.Errors[0].Message, "demo, other", "the error names the available agents")
}

func TestReportedFieldErrorsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fields := map[string]int{}
	for i := range 5000 {
		fields[strings.Repeat("x", i%50)+string(rune('a'+i%26))+time.Duration(i).String()] = 1
	}
	body, err := json.Marshal(fields)
	require.NoError(t, err)
	p := b.do("POST", "/api/sessions", string(body)).problem(400, "invalid_request")
	require.Len(t, p.Errors, 20)
}

func TestSameKeyAndBodyMakesOneSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.do("POST", "/api/sessions", `{"agent":"demo","title":"x"}`, "Idempotency-Key", "k1")
	require.Equal(t, http.StatusCreated, first.status)
	again := b.do("POST", "/api/sessions", "{\n \"title\": \"x\", \"agent\": \"demo\"}", "Idempotency-Key", "k1")
	require.Equal(t, http.StatusOK, again.status, "the same but for order and white space")
	require.Equal(t, first.session().ID, again.session().ID)
	require.Equal(t, 1, b.store.Count())

	b.do("POST", "/api/sessions", `{"agent":"demo","title":"y"}`, "Idempotency-Key", "k1").problem(http.StatusConflict, "idempotency_conflict")
	b.do("POST", "/api/sessions", `{"agent":"demo"}`, "Idempotency-Key", "k2")
	require.Equal(t, 2, b.store.Count())

	for _, key := range []string{"", "with space", strings.Repeat("k", 256), "ä"} {
		p := b.do("POST", "/api/sessions", `{"agent":"demo"}`, "Idempotency-Key", key).problem(http.StatusBadRequest, "invalid_request")
		require.Equal(t, "Idempotency-Key", p.Errors[0].Field, key)
	}
	require.Equal(t, http.StatusCreated, b.do("POST", "/api/sessions", `{"agent":"demo"}`, "Idempotency-Key", strings.Repeat("k", 255)).status)
}

func TestBigNumbersDoNotMakeBodiesSame(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, 201, b.do("POST", "/api/sessions", `{"agent":"demo","metadata":{"n":12345678901234567890}}`, "Idempotency-Key", "k").status)
	b.do("POST", "/api/sessions", `{"agent":"demo","metadata":{"n":12345678901234567891}}`, "Idempotency-Key", "k").problem(409, "idempotency_conflict")
}

func TestCreateIsAcceptedDuringTemporalOutage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.temp.Set(func(o *apitest.Signaler) { o.Err = failure.Errorf(failure.Unavailable, "down") })
	require.Equal(t, http.StatusCreated, b.do("POST", "/api/sessions", `{"agent":"demo"}`).status)
	require.Contains(t, b.logs.String(), "signal failed")
}

func TestListIsPagedAndFiltered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []string
	for i := range 5 {
		status := session.Running
		if i == 2 {
			status = session.Hibernated
		}
		ids = append(ids, b.store.Put(status))
	}
	type list struct {
		Items      []resource.SessionJSON
		NextCursor *string
	}
	var page list
	b.do("GET", "/api/sessions?limit=3", "").into(&page)
	require.Len(t, page.Items, 3)
	require.Equal(t, ids[4], page.Items[0].ID, "newest first")
	require.NotNil(t, page.NextCursor)
	var rest list
	b.do("GET", "/api/sessions?limit=3&cursor="+*page.NextCursor, "").into(&rest)
	require.Len(t, rest.Items, 2)
	require.Nil(t, rest.NextCursor)

	var sleeping list
	b.do("GET", "/api/sessions?status=hibernated&agent=demo&q=", "").into(&sleeping)
	require.Len(t, sleeping.Items, 1)
	require.Equal(t, ids[2], sleeping.Items[0].ID)

	require.JSONEq(t, `{"items":[],"nextCursor":null}`, string(b.do("GET", "/api/sessions?agent=none", "").body))
	for _, query := range []string{
		"limit=0", "limit=201", "limit=x", "limit=-1", "status=asleep", "q=%00", "agent=%ff", "cursor=" + strings.Repeat("c", 2000),
		"sort=title", "createdSince=yesterday", "createdBefore=2026-01-01", "q=a+b+c+d+e+f+g+h+i+j+k", "metadata[k]=%00",
	} {
		p := b.do("GET", "/api/sessions?"+query, "").problem(http.StatusBadRequest, "invalid_request")
		require.Equal(t, strings.Split(query, "=")[0], p.Errors[0].Field)
	}
	var many []string
	for i := range 9 {
		many = append(many, fmt.Sprintf("metadata[%d]=x", i))
	}
	for _, query := range []string{strings.Join(many, "&"), "metadata[" + strings.Repeat("k", 1025) + "]=x", "metadata[%ff]=x"} {
		p := b.do("GET", "/api/sessions?"+query, "").problem(http.StatusBadRequest, "invalid_request")
		require.Equal(t, "metadata", p.Errors[0].Field)
	}
}

func TestWorkspaceIsPatchableBeforeUseAndInError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	unused := b.store.Put(session.Initializing)
	path := "/api/sessions/" + unused
	s := b.do("PATCH", path, `{"workspace":{"repoUrl":"https://example.com/r.git","ref":"main","setup":"make"}}`).session()
	require.Equal(t, &session.Workspace{RepoURL: "https://example.com/r.git", Ref: "main", Setup: "make"}, s.Workspace)
	for _, state := range session.States {
		generation := int64(1)
		id := b.store.Put(state, func(s *session.Session) { s.Generation = generation })
		a := b.do("PATCH", "/api/sessions/"+id, `{"workspace":{"setup":"true"}}`)
		switch state {
		case session.Error:
			require.Equal(t, "true", a.session().Workspace.Setup)
		case session.Terminated:
			a.problem(http.StatusConflict, "session_terminated")
		default:
			require.Contains(t, a.problem(http.StatusConflict, "workspace_in_use").Detail, "before the first sandbox")
		}
	}
	for _, workspace := range []string{`{"repoUrl":"git@example.com:r"}`, `{"ref":"main"}`, `{"other":1}`, `null`, `[]`} {
		b.do("PATCH", path, `{"workspace":`+workspace+`}`).problem(http.StatusBadRequest, "invalid_request")
	}
}

func TestPatchChangesOnlyGivenFields(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	s := b.do("PATCH", "/api/sessions/"+id, `{"title":"new","metadata":{"a":1},"options":{"model":"m"}}`).session()
	require.Equal(t, "new", s.Title)
	require.JSONEq(t, `{"a":1}`, string(s.Metadata))
	require.Equal(t, resource.Duration(time.Minute), s.IdleTimeout, "not given, not changed")
	require.Empty(t, b.temp.TakeCalls(), "nothing that the workflow must know")

	require.Equal(t, resource.Duration(2*time.Minute), b.do("PATCH", "/api/sessions/"+id, `{"idleTimeout":"2m"}`).session().IdleTimeout)
	require.Equal(t, []string{"settings " + id + " 2m0s"}, b.temp.TakeCalls())

	for _, body := range []string{`{"agent":"other"}`, `{"title":null}`, `{"idleTimeout":"0s"}`, `{"status":"running"}`, `{"metadata":"x"}`} {
		b.do("PATCH", "/api/sessions/"+id, body).problem(http.StatusBadRequest, "invalid_request")
	}
	b.do("PATCH", "/api/sessions/"+session.NewID("ses_"), `{"title":"x"}`).problem(http.StatusNotFound, "session_not_found")

	b.temp.Set(func(o *apitest.Signaler) { o.Err = failure.Errorf(failure.Unavailable, "down") })
	require.Equal(t, resource.Duration(3*time.Minute), b.do("PATCH", "/api/sessions/"+id, `{"idleTimeout":"3m"}`).session().IdleTimeout,
		"the change is stored; a relay signals the workflow when Temporal answers")
}
