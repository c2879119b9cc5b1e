package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

type runView struct {
	RunID, SessionID, PromptID, Status, Outcome, BaseSessionID, BaseBundleID, Reason string
	Forked                                                                           bool
}

func TestRunIsStartedShownAndListed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, bundleID := b.store.Put(session.Running), session.NewID(session.BundlePrefix)
	b.store.With(id, func(r *apitest.Row) {
		r.Bundles = []bundle.View{{Bundle: bundle.Bundle{ID: bundleID, SessionID: id}, PromptID: "p2"}}
	})
	var first, again, forked runView
	body := `{"baseSessionId":"` + id + `","input":"work"}`
	a := b.do("POST", "/api/runs", body, "Idempotency-Key", "k")
	require.Equal(t, http.StatusAccepted, a.status, "%s", a.body)
	a.into(&first)
	require.Equal(t, "/api/runs/"+first.RunID, a.header.Get("Location"))
	require.Equal(t, runView{RunID: first.RunID, SessionID: id, PromptID: first.PromptID, Status: "queued", BaseSessionID: id, BaseBundleID: bundleID}, first)
	require.NotEmpty(t, b.temp.TakeCalls(), "the workflow is notified")
	a = b.do("POST", "/api/runs", body, "Idempotency-Key", "k")
	require.Equal(t, http.StatusOK, a.status)
	a.into(&again)
	require.Equal(t, first, again)
	b.do("POST", "/api/runs", strings.Replace(body, "work", "other", 1), "Idempotency-Key", "k").problem(http.StatusConflict, string(failure.Idempotency))
	b.do("POST", "/api/runs", body).problem(http.StatusConflict, string(failure.RunUnfinished))
	a = b.do("POST", "/api/runs", `{"baseBundleId":"`+bundleID+`","input":"work","fork":true,"agent":"demo"}`)
	require.Equal(t, http.StatusAccepted, a.status, "%s", a.body)
	a.into(&forked)
	require.True(t, forked.Forked)
	require.NotEqual(t, id, forked.SessionID)

	var page struct{ Items []runView }
	b.do("GET", "/api/runs?sessionId="+id+"&status=queued", "").into(&page)
	require.Equal(t, []runView{first}, page.Items)
	b.do("GET", "/api/runs?limit=1", "").into(&page)
	require.Equal(t, []runView{forked}, page.Items)

	session404, bundle404 := session.NewID(session.SessionPrefix), session.NewID(session.BundlePrefix)
	b.do("POST", "/api/runs", `{"baseSessionId":"`+session404+`","input":"x"}`).problem(http.StatusNotFound, string(failure.NoSession))
	b.do("POST", "/api/runs", `{"baseBundleId":"`+bundle404+`","input":"x"}`).problem(http.StatusNotFound, string(failure.NoBundle))
	a = b.do("POST", "/api/runs", `{"baseBundleId":"`+bundleID+`","input":"work","fork":true,"agent":"other"}`)
	require.Equal(t, http.StatusAccepted, a.status, "%s", a.body)
	require.Contains(t, string(a.body), `"agent":"other"`)
	b.do("GET", "/api/runs/"+session.NewID(session.RunPrefix), "").problem(http.StatusNotFound, string(failure.NoRun))
	for body, field := range map[string]string{
		`{"input":"x"}`: "baseSessionId", `{"baseSessionId":"` + id + `","baseBundleId":"` + bundleID + `","input":"x"}`: "baseSessionId",
		`{"baseSessionId":"x","input":"x"}`: "baseSessionId", `{"baseBundleId":"x","input":"x"}`: "baseBundleId",
		`{"baseSessionId":"` + id + `"}`: "input", `{"baseSessionId":"` + id + `","input":" "}`: "input", `{"baseSessionId":"` + id + `","input":"x","agent":"nobody"}`: "agent",
		`{"baseSessionId":"` + id + `","input":"x","wait":"11m"}`: "wait", `{"baseSessionId":"` + id + `","input":"x","wait":"soon"}`: "wait",
		`{"baseSessionId":"` + id + `","input":"x","onUnknown":"y"}`: "onUnknown", `{"baseSessionId":"` + id + `","input":"x","files":1}`: "files",
	} {
		p := b.do("POST", "/api/runs", body).problem(http.StatusBadRequest, string(failure.Invalid))
		require.Equal(t, field, p.Errors[0].Field, body)
	}
	b.do("GET", "/api/runs?status=open", "").problem(http.StatusBadRequest, string(failure.Invalid))
	b.do("GET", "/api/runs?sessionId=x", "").problem(http.StatusBadRequest, string(failure.Invalid))
	b.do("GET", "/api/runs/"+first.RunID+"?wait=601s", "").problem(http.StatusBadRequest, string(failure.Invalid))
}

func TestRunWaitsForOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	answers := make(chan answer, 2)
	go func() { answers <- b.do("POST", "/api/runs", `{"baseSessionId":"`+id+`","input":"work","wait":"10m"}`) }()
	var started runView
	require.Eventually(t, func() bool {
		var page struct{ Items []runView }
		b.do("GET", "/api/runs?sessionId="+id, "").into(&page)
		if len(page.Items) == 1 {
			started = page.Items[0]
		}
		return started.RunID != ""
	}, time.Minute, time.Millisecond)
	go func() { answers <- b.do("GET", "/api/runs/"+started.RunID+"?wait=10m", "") }()

	var got runView
	b.do("GET", "/api/runs/"+started.RunID+"?wait=1ms", "").into(&got)
	require.Equal(t, "queued", got.Status, "it is not over when the time is up")
	b.store.Turn(id, started.PromptID, session.PromptCompleted, "", "done")
	for range 2 {
		select {
		case a := <-answers:
			require.Equal(t, http.StatusOK, a.status, "%s", a.body)
			a.into(&got)
			require.Equal(t, "completed", got.Outcome)
			require.Equal(t, started.RunID, got.RunID)
		case <-time.After(time.Minute):
			require.Fail(t, "the end of the run is not noticed")
		}
	}
}

func TestRunIsCancelled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	var got runView
	begin := func() runView {
		t.Helper()
		a := b.do("POST", "/api/runs", `{"baseSessionId":"`+id+`","input":"work"}`)
		require.Equal(t, http.StatusAccepted, a.status, "%s", a.body)
		a.into(&got)
		return got
	}
	cancel := func(r runView) answer { return b.do("POST", "/api/runs/"+r.RunID+"/cancel", "") }
	waits := begin()
	a := cancel(waits)
	require.Equal(t, http.StatusOK, a.status)
	a.into(&got)
	require.Equal(t, "cancelled", got.Outcome)
	require.Equal(t, "withdrawn", got.Reason)

	works := begin()
	b.store.With(id, func(r *apitest.Row) {
		p := &r.Prompts[len(r.Prompts)-1]
		p.Status, p.RunID = session.PromptProcessing, p.AllottedRun
	})
	a = cancel(works)
	require.Equal(t, http.StatusAccepted, a.status)
	b.store.With(id, func(r *apitest.Row) {
		require.Equal(t, works.RunID, r.Session.Pending[0].RunID)
		r.Prompts[len(r.Prompts)-1].Status = session.PromptUnknown
	})
	cancel(works).problem(http.StatusConflict, string(failure.IllegalState))
	b.store.With(id, func(r *apitest.Row) { r.Prompts[len(r.Prompts)-1].Status = session.PromptFailed })
	a = cancel(works)
	require.Equal(t, http.StatusOK, a.status)
	a.into(&got)
	require.Equal(t, "failed", got.Outcome, "an outcome stays")

	b.do("POST", "/api/runs/"+session.NewID(session.RunPrefix)+"/cancel", "").problem(http.StatusNotFound, string(failure.NoRun))
	b.do("POST", "/api/runs/x/cancel", "").problem(http.StatusBadRequest, string(failure.Invalid))
}
