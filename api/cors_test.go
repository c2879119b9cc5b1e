package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	appOrigin   = "https://app.example.com"
	otherOrigin = "https://other.example.com"
)

func preflight(b *harness, path, origin string) answer {
	return b.do("OPTIONS", path, "", "Origin", origin, "Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "if-none-match, authorization")
}

func TestPagesOfConfiguredOriginsUseAPI(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.CORSOrigins = []string{"http://localhost:5173", appOrigin} })
	path := "/api/sessions/" + b.store.Put(session.Running)
	for _, target := range []string{path + "/stream", path + "/events", path} {
		a := preflight(b, target, appOrigin)
		require.Equal(t, http.StatusNoContent, a.status)
		require.Equal(t, appOrigin, a.header.Get("Access-Control-Allow-Origin"))
		require.Equal(t, "Origin", a.header.Get("Vary"))
		require.Contains(t, a.header.Get("Access-Control-Allow-Methods"), "PATCH")
		for _, header := range []string{"If-None-Match", "Authorization", "Last-Event-ID", "Idempotency-Key"} {
			require.Contains(t, a.header.Get("Access-Control-Allow-Headers"), header)
		}
		require.Empty(t, a.header.Get("Access-Control-Allow-Credentials"))
	}
	read := b.do("GET", path+"/stream", "", "Origin", appOrigin, "Sec-Fetch-Site", "cross-site")
	require.Equal(t, appOrigin, read.header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "cross-origin", read.header.Get("Cross-Origin-Resource-Policy"))
	for _, header := range []string{"Stream-Next-Offset", "Stream-Cursor", "Stream-Up-To-Date", "Stream-Closed", "ETag"} {
		require.Contains(t, read.header.Get("Access-Control-Expose-Headers"), header)
	}
	wrong := b.do("GET", path+"/stream?offset=x", "", "Origin", appOrigin)
	wrong.problem(http.StatusBadRequest, "invalid_request")
	require.Equal(t, appOrigin, wrong.header.Get("Access-Control-Allow-Origin"), "a page can read errors")
	require.Equal(t, http.StatusOK, b.do("PATCH", path, `{"title":"x"}`, "Origin", appOrigin, "Sec-Fetch-Site", "cross-site").status)

	refused := preflight(b, path, otherOrigin)
	require.Empty(t, refused.header.Get("Access-Control-Allow-Origin"))
	foreign := b.do("GET", path+"/stream", "", "Origin", otherOrigin)
	require.Empty(t, foreign.header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "same-origin", foreign.header.Get("Cross-Origin-Resource-Policy"))
	require.Equal(t, "Origin", foreign.header.Get("Vary"))
	b.do("PATCH", path, `{"title":"x"}`, "Origin", otherOrigin, "Sec-Fetch-Site", "cross-site").problem(http.StatusForbidden, "forbidden")
}

func TestPagesOfEveryOriginNeedKey(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.Key, c.CORSOrigins = secret.NewValue(apiKey), []string{"*"} })
	path := "/api/sessions/" + b.store.Put(session.Running)
	require.Equal(t, "*", preflight(b, path, otherOrigin).header.Get("Access-Control-Allow-Origin"), "a preflight has no key")
	b.do("PATCH", path, `{"title":"x"}`, "Origin", otherOrigin, "Sec-Fetch-Site", "cross-site").problem(http.StatusUnauthorized, "unauthorized")
	a := b.do("PATCH", path, `{"title":"x"}`, "Origin", otherOrigin, "Sec-Fetch-Site", "cross-site", "Authorization", "Bearer "+apiKey)
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "*", a.header.Get("Access-Control-Allow-Origin"))
}

func TestNoOriginIsAdmittedByDefault(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := "/api/sessions/" + b.store.Put(session.Running)
	for _, a := range []answer{preflight(b, path, appOrigin), b.do("GET", path, "", "Origin", appOrigin)} {
		require.Empty(t, a.header.Get("Access-Control-Allow-Origin"))
		require.Empty(t, a.header.Get("Vary"))
	}
}

func TestOriginsAreChecked(t *testing.T) {
	t.Parallel()
	for _, right := range []string{"https://a.example", "http://localhost:5173", "http://127.0.0.1:8080", "https://[::1]:8443"} {
		require.NoError(t, api.CheckOrigins([]string{right}, false), right)
	}
	for _, wrong := range []string{"", "a.example", "https://a.example/", "https://a.example/x", "HTTPS://a.example", "https://A.example", "ftp://a", "https://*.example", "https://u:p@a.example", "null"} {
		require.ErrorContains(t, api.CheckOrigins([]string{wrong}, true), "is not an origin", wrong)
	}
	require.NoError(t, api.CheckOrigins([]string{"*"}, true))
	require.ErrorContains(t, api.CheckOrigins([]string{"*"}, false), "needs an API key")
}
