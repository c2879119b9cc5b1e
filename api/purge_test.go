package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestPurgeIsAcceptedInEveryState checks that a purge stops a session that is not terminated, and
// that a repeated request has no effect.
func TestPurgeIsAcceptedInEveryState(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, state := range session.States {
		id := b.store.Put(state)
		first := b.do("DELETE", "/api/sessions/"+id+"?purge=true", "")
		require.Equal(t, http.StatusAccepted, first.status, "%s: %s", state, first.body)
		if calls := b.temp.TakeCalls(); state.Final() {
			require.Empty(t, calls, state)
		} else {
			require.Len(t, calls, 1, state)
		}
		require.Contains(t, string(first.body), `"purge":{"state":"stopping"`)
		again := b.do("DELETE", "/api/sessions/"+id+"?purge=true", "")
		require.Equal(t, http.StatusAccepted, again.status)
		b.temp.TakeCalls()
		shown := b.do("GET", "/api/sessions/"+id, "")
		require.Equal(t, http.StatusOK, shown.status)
		require.Contains(t, string(shown.body), `"purge":{"state":"stopping"`)
	}
	require.Equal(t, http.StatusNotFound, b.do("DELETE", "/api/sessions/"+session.NewID(session.SessionPrefix)+"?purge=true", "").status)
}

func TestDeleteRefusesUnknownParameters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	for _, query := range []string{"purge=1", "purge=", "purge=true&purge=true", "forks=purge", "purge=true&x=y"} {
		a := b.do("DELETE", "/api/sessions/"+id+"?"+query, "")
		require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", query, a.body)
		require.Empty(t, b.temp.TakeCalls(), query)
	}
	require.Equal(t, http.StatusBadRequest, b.do("DELETE", "/api/sessions/"+id+"?purge=true", `{"force":true}`).status)
	require.NotContains(t, string(b.do("GET", "/api/sessions/"+id, "").body), `"purge"`)
	require.Equal(t, http.StatusAccepted, b.do("DELETE", "/api/sessions/"+id+"?purge=false", "").status)
	require.NotContains(t, string(b.do("GET", "/api/sessions/"+id, "").body), `"purge"`)
}
