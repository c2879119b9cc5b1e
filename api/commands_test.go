package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestCommandsInEveryState checks the whole table: the response to each command in each state, and
// whether the workflow is notified.
func TestCommandsInEveryState(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const (
		status202  = "202"
		status200  = "200"
		illegal    = "illegal_state"
		terminated = "session_terminated"
		failed     = "session_in_error"
	)
	for _, tt := range []struct {
		command                                                                         string
		lazy, starting, running, hibernating, hibernated, restoring, failed, terminated string
	}{
		{"wake", status202, status200, status200, status202, status202, status200, failed, terminated},
		{"hibernate", illegal, illegal, status202, status200, status200, status202, failed, terminated},
		{"sync", illegal, illegal, status202, status200, status200, status202, failed, terminated},
		{"environment/terminate", illegal, illegal, status202, status200, status200, status202, status202, terminated},
		{"environment/restart", illegal, illegal, status202, illegal, illegal, status202, failed, terminated},
		{"stop", status202, status202, status202, status202, status202, status202, status202, status200},
		{"abort", status200, status200, status200, status200, status200, status200, status200, terminated},
		{"recover", illegal, illegal, status200, illegal, illegal, status200, status202, terminated},
	} {
		for _, in := range []struct {
			state session.State
			lazy  bool
			want  string
		}{
			{session.Initializing, true, tt.lazy},
			{session.Initializing, false, tt.starting},
			{session.Running, false, tt.running},
			{session.Hibernating, false, tt.hibernating},
			{session.Hibernated, false, tt.hibernated},
			{session.Restoring, false, tt.restoring},
			{session.Error, false, tt.failed},
			{session.Terminated, false, tt.terminated},
		} {
			id := b.store.Put(in.state, func(s *session.Session) { s.Lazy = in.lazy })
			a := b.do("POST", "/api/sessions/"+id+"/"+tt.command, "")
			calls := b.temp.TakeCalls()
			what := tt.command + " in " + string(in.state)
			switch in.want {
			case status202:
				require.Equal(t, http.StatusAccepted, a.status, "%s: %s", what, a.body)
				require.Len(t, calls, 1, what)
				signal := "notify"
				if tt.command == "stop" {
					signal = "stop"
				}
				require.Equal(t, signal+" "+id, calls[0])
				require.Equal(t, in.state, a.session().Status)
				require.Len(t, a.session().PendingCommands, 1)
				require.EqualValues(t, tt.command, a.session().PendingCommands[0].Kind)
			case status200:
				require.Equal(t, http.StatusOK, a.status, "%s: %s", what, a.body)
				require.Empty(t, calls, what)
				require.Equal(t, id, a.session().ID)
			default:
				p := a.problem(http.StatusConflict, in.want)
				require.Empty(t, calls, what)
				if in.state == session.Error {
					require.Contains(t, p.Detail, "in error: test; POST recover", "the reason and a way out are named")
				}
			}
		}
	}
}

func TestAbortOfRunningTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	run := session.NewID(session.RunPrefix)
	b.store.With(id, func(r *apitest.Row) {
		r.Prompts = []session.Prompt{{ID: "p", Status: session.PromptProcessing, RunID: run}}
	})
	path := "/api/sessions/" + id + "/abort"
	for _, body := range []string{``, `{}`, `{"runId":"` + run + `"}`} {
		a := b.do("POST", path, body)
		require.Equal(t, http.StatusAccepted, a.status, "%s", a.body)
		require.Equal(t, run, a.session().PendingCommands[0].RunID, "the run at the time of the request")
		require.Equal(t, []string{"notify " + id}, b.temp.TakeCalls())
	}
	b.do("POST", path, `{"runId":"`+session.NewID(session.RunPrefix)+`"}`).problem(http.StatusNotFound, "run_not_found")
	b.do("POST", path, `{"runId":"x"}`).problem(http.StatusBadRequest, "invalid_request")
	b.do("POST", path, `{"force":true}`).problem(http.StatusBadRequest, "invalid_request")
}

func TestDeleteStopsSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	require.Equal(t, http.StatusAccepted, b.do("DELETE", "/api/sessions/"+id, "").status)
	require.Equal(t, []string{"stop " + id}, b.temp.TakeCalls())
	b.store.Status(id, session.Terminated)
	require.Equal(t, http.StatusOK, b.do("DELETE", "/api/sessions/"+id, "").status)
}

func TestHibernateAcceptsOnlyForce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	path := "/api/sessions/" + id + "/hibernate"
	for body, force := range map[string]string{``: "false", `{}`: "false", `{"force":false}`: "false", `{"force":true}`: "true"} {
		require.Equal(t, http.StatusAccepted, b.do("POST", path, body).status, body)
		require.Equal(t, []string{"notify " + id}, b.temp.TakeCalls(), body)
		require.Equal(t, force == "true", b.store.Row(id).Session.Pending[0].Force, body)
		b.store.With(id, func(r *apitest.Row) { r.Session.Pending = nil })
	}
	for _, body := range []string{`{"force":"yes"}`, `{"force":1}`, `{"force":null}`, `{"now":true}`, `[]`, `true`, `{}{}`} {
		b.do("POST", path, body).problem(http.StatusBadRequest, "invalid_request")
	}
	b.do("POST", "/api/sessions/"+id+"/wake", `{"force":true}`).problem(http.StatusBadRequest, "invalid_request")
	require.Empty(t, b.temp.TakeCalls())
}

// While Temporal is unavailable, a command is stored and answered; the relay signals it later.
func TestCommandIsAcceptedDuringTemporalOutage(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.SignalWait, c.SignalTimeout = time.Millisecond, 10*time.Millisecond })
	for _, set := range []func(o *apitest.Signaler){
		func(o *apitest.Signaler) {
			o.Err = failure.Errorf(failure.Unavailable, "temporal does not answer")
		},
		func(o *apitest.Signaler) { o.Err, o.Hang = nil, true },
	} {
		b.temp.Set(set)
		for range 3 {
			id := b.store.Put(session.Hibernated)
			a := b.do("POST", "/api/sessions/"+id+"/wake", "")
			require.Equal(t, http.StatusAccepted, a.status, "%s", a.body)
			require.Equal(t, session.CommandWake, a.session().PendingCommands[0].Kind)
		}
	}
}

// A Temporal server that hangs delays a request by at most SignalWait, and occupies a bounded
// number of goroutines.
func TestHangingSignalsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.SignalWait = time.Millisecond })
	until := make(chan struct{})
	defer close(until)
	b.temp.Set(func(o *apitest.Signaler) { o.Hang, o.Until = true, until })
	id := b.store.Put(session.Running)
	for range 100 {
		require.Equal(t, http.StatusAccepted, b.do("POST", "/api/sessions/"+id+"/hibernate", "").status)
	}
	require.LessOrEqual(t, len(b.temp.TakeCalls()), 64)
	require.Contains(t, b.logs.String(), "too many signals")
}

func TestCommandIsRefusedDuringStoreOutage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Hibernated)
	b.store.Fail("CommandSubmit", failure.Errorf(failure.Unavailable, "the database is not available"))
	a := b.do("POST", "/api/sessions/"+id+"/wake", "")
	a.problem(http.StatusServiceUnavailable, "unavailable")
	require.Equal(t, "1", a.header.Get("Retry-After"))
	require.Empty(t, b.temp.TakeCalls())
}

func TestInvalidAndUnknownIDs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	nothing := session.NewID(session.SessionPrefix)
	known := b.store.Put(session.Running)
	routes := []struct{ method, path, body string }{
		{"GET", "", ""},
		{"PATCH", "", `{"title":"x"}`},
		{"DELETE", "", ""},
		{"POST", "/wake", ""},
		{"POST", "/hibernate", ""},
		{"POST", "/stop", ""},
		{"POST", "/abort", ""},
		{"POST", "/recover", ""},
		{"POST", "/prompts", `{"content":"x"}`},
		{"GET", "/prompts", ""},
		{"GET", "/prompts/p", ""},
		{"DELETE", "/prompts/p", ""},
		{"POST", "/messages", `{"content":"x"}`},
		{"GET", "/messages", ""},
		{"GET", "/messages/p", ""},
		{"DELETE", "/messages/p", ""},
		{"GET", "/blocks", ""},
		{"GET", "/transcript", ""},
		{"GET", "/events", ""},
	}
	for _, r := range routes {
		p := b.do(r.method, "/api/sessions/"+nothing+r.path, r.body).problem(http.StatusNotFound, "session_not_found")
		require.Contains(t, p.Detail, nothing)
		for _, bad := range []string{"1", "ses_1", "ses_" + nothing, "run_" + nothing[4:], "%00", nothing[:35] + "A"} {
			p := b.do(r.method, "/api/sessions/"+bad+r.path, r.body).problem(http.StatusBadRequest, "invalid_request")
			require.Equal(t, "id", p.Errors[0].Field, bad)
		}
	}
	require.Empty(t, b.temp.TakeCalls())
	b.do("GET", "/api/sessions/"+known+"/prompts/nothing", "").problem(http.StatusNotFound, "prompt_not_found")
	b.do("DELETE", "/api/sessions/"+known+"/prompts/nothing", "").problem(http.StatusNotFound, "prompt_not_found")
	p := b.do("GET", "/api/sessions/"+known+"/prompts/a%20b", "").problem(http.StatusBadRequest, "invalid_request")
	require.Equal(t, "promptId", p.Errors[0].Field)
}
