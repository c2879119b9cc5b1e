package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestPromptOfUnknownOutcomeIsRetriedResolvedOrDismissed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	lost := session.NewID(session.RunPrefix)
	b.store.With(id, func(r *apitest.Row) {
		for _, prompt := range []string{"a", "b", "c", "d"} {
			r.Prompts = append(r.Prompts, session.Prompt{
				ID: prompt, SessionID: id, Ordinal: int64(len(r.Prompts) + 1), Status: session.PromptUnknown, RunID: lost, OnUnknown: session.Hold, Mode: session.Followup,
			})
		}
		r.Prompts = append(r.Prompts, session.Prompt{ID: "done", SessionID: id, Ordinal: 5, Status: session.PromptCompleted, OnUnknown: session.Hold, Mode: session.Followup})
	})
	path := "/api/sessions/" + id + "/prompts/"
	post := func(what, body string, status int) (p resource.PromptJSON) {
		t.Helper()
		a := b.do("POST", path+what, body)
		require.Equal(t, status, a.status, "%s", a.body)
		a.into(&p)
		return p
	}
	p := post("a/retry", `{"runId":"`+lost+`"}`, http.StatusAccepted)
	require.Equal(t, session.PromptQueued, p.Status)
	require.Equal(t, session.ResolutionRetry, p.Resolution.Action)
	require.Equal(t, []string{"prompt " + id + " a 1"}, b.temp.TakeCalls())
	post("a/retry", ``, http.StatusOK)

	p = post("b/resolve", `{"outcome":"failed","note":"the deploy did not happen"}`, http.StatusOK)
	require.Equal(t, session.PromptFailed, p.Status)
	require.Equal(t, "resolved", p.Reason)
	require.Equal(t, "the deploy did not happen", p.Resolution.Note)
	post("b/resolve", `{"outcome":"failed"}`, http.StatusOK)
	b.do("POST", path+"b/resolve", `{"outcome":"completed"}`).problem(http.StatusConflict, "prompt_not_unknown")

	p = post("c/dismiss", ``, http.StatusOK)
	require.Equal(t, session.PromptCancelled, p.Status)
	require.Equal(t, "dismissed", p.Reason)
	require.Contains(t, b.do("POST", path+"done/dismiss", ``).problem(http.StatusConflict, "prompt_not_unknown").Detail, "prompt done is completed")
	b.do("POST", path+"nope/dismiss", ``).problem(http.StatusNotFound, "prompt_not_found")
	b.do("POST", path+"d/retry", `{"runId":"`+session.NewID(session.RunPrefix)+`"}`).problem(http.StatusNotFound, "run_not_found")
	for what, body := range map[string]string{
		"d/retry": `{"runId":"x"}`, "d/resolve": `{}`, "d/dismiss": `{"note":"` + strings.Repeat("x", 1001) + `"}`,
	} {
		b.do("POST", path+what, body).problem(http.StatusBadRequest, "invalid_request")
	}
	b.do("POST", path+"d/resolve", `{"outcome":"unknown"}`).problem(http.StatusBadRequest, "invalid_request")
}
