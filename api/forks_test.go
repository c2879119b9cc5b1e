package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestSessionIsForked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, bundleID := b.store.Put(session.Running), session.NewID(session.BundlePrefix)
	b.store.With(id, func(r *apitest.Row) {
		r.Bundles = []bundle.View{{Bundle: bundle.Bundle{ID: bundleID, SessionID: id}, PromptID: "p2"}}
	})
	url := "/api/sessions/" + id
	var got struct {
		ID, Status, Title string
		ForkedFrom        struct{ SessionID, BundleID, PromptID string }
		Queue             struct{ Queued int }
	}
	a := b.do("POST", url+"/fork", `{"promptId":"p2","title":"mine","prompt":{"id":"x","content":"again"}}`)
	require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
	a.into(&got)
	require.Equal(t, "/api/sessions/"+got.ID, a.header.Get("Location"))
	require.Equal(t, "hibernated", got.Status)
	require.Equal(t, "mine", got.Title)
	require.Equal(t, 1, got.Queue.Queued)
	require.Equal(t, id, got.ForkedFrom.SessionID)
	require.Equal(t, bundleID, got.ForkedFrom.BundleID)
	require.Equal(t, "p2", got.ForkedFrom.PromptID)
	require.NotEmpty(t, b.temp.TakeCalls(), "the fork's workflow is notified")
	var page struct{ Items []struct{ ID string } }
	b.do("GET", url+"/forks", "").into(&page)
	require.Len(t, page.Items, 1)
	require.Equal(t, got.ID, page.Items[0].ID)
	require.Equal(t, http.StatusCreated, b.do("POST", url+"/fork", `{"bundleId":"`+bundleID+`"}`).status)

	for body, field := range map[string]string{
		`{}`: "bundleId", `{"bundleId":"x"}`: "bundleId", `{"bundleId":"` + bundleID + `","promptId":"p2"}`: "bundleId", `{"promptId":"?"}`: "promptId",
		`{"bundleId":"` + bundleID + `","before":true}`: "before", `{"promptId":"p2","files":true}`: "files",
	} {
		p := b.do("POST", url+"/fork", body).problem(http.StatusBadRequest, string(failure.Invalid))
		require.Equal(t, field, p.Errors[0].Field, body)
	}
	none := b.do("POST", url+"/fork", `{"promptId":"p9"}`).problem(http.StatusConflict, string(failure.NoBundleThere))
	require.Equal(t, "nearest.before", none.Errors[0].Field)
	require.Equal(t, bundleID, none.Errors[0].Message)
	handed := b.do("POST", url+"/fork", `{"promptId":"p2","agent":"other"}`)
	require.Equal(t, http.StatusCreated, handed.status, "%s", handed.body)
	require.Equal(t, "other", handed.session().Agent)
	require.Equal(t, &resource.ForkedFromJSON{SessionID: id, BundleID: bundleID, PromptID: "p2", Agent: "demo"}, handed.session().ForkedFrom)
	wrong := b.do("POST", url+"/fork", `{"promptId":"p2","agent":"nobody"}`).problem(http.StatusBadRequest, string(failure.Invalid))
	require.Equal(t, "agent", wrong.Errors[0].Field)
	b.do("POST", "/api/sessions/"+session.NewID(session.SessionPrefix)+"/fork", `{"promptId":"p2"}`).problem(http.StatusNotFound, string(failure.NoSession))
	b.do("DELETE", url+"?purge=true&forks=maybe", "").problem(http.StatusBadRequest, string(failure.Invalid))
	require.Equal(t, http.StatusAccepted, b.do("DELETE", url+"?purge=true&forks=detach", "").status)
}
