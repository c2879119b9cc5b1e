package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestPromptMayBeReverted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	prompts := []session.Prompt{
		{ID: "done", Status: session.PromptCompleted, RunID: "run_1"},
		{ID: "waits", Status: session.PromptQueued},
		{ID: "never", Status: session.PromptCancelled},
		{ID: "gone", Status: session.PromptCompleted, RunID: "run_2", Reason: session.ReasonReverted},
	}
	in := func(state session.State, agent string) string {
		id := b.store.Put(state, func(s *session.Session) { s.Agent = agent })
		b.store.With(id, func(r *apitest.Row) { r.Prompts = prompts })
		return "/api/sessions/" + id
	}
	for _, state := range []session.State{session.Running, session.Hibernated, session.Hibernating, session.Restoring} {
		path := in(state, "demo")
		a := b.do("POST", path+"/revert", `{"promptId":"done"}`)
		require.Equal(t, http.StatusAccepted, a.status, "%s: %s", state, a.body)
		require.Equal(t, []string{"notify " + a.session().ID}, b.temp.TakeCalls())
		require.Equal(t, "done", a.session().PendingCommands[0].PromptID)
	}
	path := in(session.Running, "demo")
	require.Equal(t, http.StatusAccepted, b.do("POST", path+"/revert", `{"promptId":"done","force":true}`).status)
	require.Len(t, b.temp.TakeCalls(), 1)
	for _, prompt := range []string{"waits", "never", "gone"} {
		b.do("POST", path+"/revert", `{"promptId":"`+prompt+`"}`).problem(http.StatusConflict, "illegal_state")
	}
	b.do("POST", path+"/revert", `{"promptId":"unknown"}`).problem(http.StatusNotFound, "prompt_not_found")
	for _, body := range []string{`{}`, `{"promptId":7}`, `{"promptId":"a/b"}`, `{"promptId":"done","x":1}`, `{"promptId":"done","force":1}`} {
		b.do("POST", path+"/revert", body).problem(http.StatusBadRequest, "invalid_request")
	}
	b.do("POST", in(session.Running, "stiff")+"/revert", `{"promptId":"done"}`).problem(http.StatusConflict, "not_supported")
	b.do("POST", in(session.Error, "demo")+"/revert", `{"promptId":"done"}`).problem(http.StatusConflict, "session_in_error")
	b.do("POST", in(session.Terminated, "demo")+"/revert", `{"promptId":"done"}`).problem(http.StatusConflict, "session_terminated")
	require.Empty(t, b.temp.TakeCalls())
}

func TestSessionMayBeRevertedToBundle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bundleID := session.NewID(session.BundlePrefix)
	in := func(agent string) string {
		id := b.store.Put(session.Running, func(s *session.Session) { s.Agent = agent })
		b.store.With(id, func(r *apitest.Row) {
			r.Prompts = []session.Prompt{{ID: "done", Status: session.PromptCompleted, RunID: "run_1"}}
			r.Bundles = []bundle.View{{Bundle: bundle.Bundle{ID: bundleID, SessionID: id}}}
		})
		return "/api/sessions/" + id + "/revert"
	}
	for body, files := range map[string]bool{
		`{"bundleId":"` + bundleID + `"}`: true, `{"bundleId":"` + bundleID + `","files":true}`: true, `{"bundleId":"` + bundleID + `","files":false}`: false,
		`{"promptId":"done"}`: false, `{"promptId":"done","files":false}`: false, `{"promptId":"done","files":true,"force":true}`: true,
	} {
		a := b.do("POST", in("demo"), body)
		require.Equal(t, http.StatusAccepted, a.status, "%s: %s", body, a.body)
		pending := a.session().PendingCommands[0]
		require.Equal(t, session.CommandRevert, pending.Kind, "both kinds are reverts for clients")
		require.Equal(t, files, pending.Files, body)
		if !files {
			b.do("POST", in("stiff"), body).problem(http.StatusConflict, "not_supported")
			continue
		}
		require.Equal(t, http.StatusAccepted, b.do("POST", in("stiff"), body).status, "its memory comes with the files")
	}
	for _, body := range []string{
		`{"bundleId":"` + bundleID + `","promptId":"done"}`, `{"bundleId":"x"}`, `{"bundleId":"` + bundleID + `","files":7}`, `{"files":true}`,
	} {
		b.do("POST", in("demo"), body).problem(http.StatusBadRequest, "invalid_request")
	}
	b.do("POST", in("demo"), `{"bundleId":"`+session.NewID(session.BundlePrefix)+`"}`).problem(http.StatusNotFound, "bundle_not_found")
}
