package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/why"
)

func TestSessionIsExplained(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	path := "/api/sessions/" + id + "/why"
	b.temp.Set(func(o *apitest.Signaler) { o.Past = why.History{Open: true, RunID: "w", Read: 12} })

	var got why.Explanation
	b.do("GET", path, "").into(&got)
	require.Equal(t, why.Session, got.Of)
	require.Equal(t, why.SessionRunning, got.Code)
	require.Equal(t, why.Engine{Available: true, WorkflowOpen: true, Events: 12}, got.Temporal)
	require.Empty(t, got.Disagreements)

	b.temp.Set(func(o *apitest.Signaler) { o.Err = failure.Errorf(failure.Unavailable, "temporal does not answer") })
	b.do("GET", path, "").into(&got)
	require.False(t, got.Temporal.Available)
	require.Contains(t, got.Temporal.Reason, "temporal does not answer")
	require.Equal(t, why.TemporalUnavailable, got.Causes[len(got.Causes)-1].Code)

	for query, field := range map[string]string{
		"?of=x": "of", "?id=1": "id", "?of=prompt&id=%20": "id", "?of=question&id=q": "id", "?off=prompt": "off",
	} {
		require.Equal(t, field, b.do("GET", path+query, "").problem(http.StatusBadRequest, "invalid_request").Errors[0].Field, query)
	}
	b.do("GET", path+"?of=prompt&id=none", "").problem(http.StatusNotFound, "prompt_not_found")
	b.do("GET", "/api/sessions/"+session.NewID(session.SessionPrefix)+"/why", "").problem(http.StatusNotFound, "session_not_found")
}

func TestDocumentHasEveryCodeOfCause(t *testing.T) {
	t.Parallel()
	doc, _ := specification()
	var codes []any
	for _, code := range why.Codes {
		codes = append(codes, string(code))
	}
	require.ElementsMatch(t, codes, doc.Components.Schemas["CauseCode"].Value.Enum)
}

func TestHistoryOfWorkflowIsReadInPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	path := "/api/sessions/" + id + "/history"
	b.temp.Set(func(o *apitest.Signaler) {
		o.Pages = [][]resource.HistoryEventJSON{{{RunID: "r2", Event: []byte(`{"eventId":"1"}`)}}, {{RunID: "r1", Event: []byte(`{"eventId":"1"}`)}}}
	})
	var page struct {
		Items      []resource.HistoryEventJSON `json:"items"`
		NextCursor *string                     `json:"nextCursor"`
	}
	b.do("GET", path, "").into(&page)
	require.Equal(t, "r2", page.Items[0].RunID)
	require.NotNil(t, page.NextCursor)
	b.do("GET", path+"?limit=1&cursor="+*page.NextCursor, "").into(&page)
	require.Equal(t, "r1", page.Items[0].RunID)
	require.Nil(t, page.NextCursor)
	b.do("GET", path+"?limit=501", "").problem(http.StatusBadRequest, "invalid_request")
	b.do("GET", "/api/sessions/"+session.NewID(session.SessionPrefix)+"/history", "").problem(http.StatusNotFound, "session_not_found")
	b.temp.Set(func(o *apitest.Signaler) { o.Err = failure.Errorf(failure.Unavailable, "temporal does not answer") })
	b.do("GET", path, "").problem(http.StatusServiceUnavailable, "unavailable")
}
