package api_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

const planted = "hunter2-planted"

func TestSecretsAreWrittenAndNeverRead(t *testing.T) {
	t.Parallel()
	keyring, err := secret.NewKeyring(bytes.Repeat([]byte{7}, secret.KeyBytes))
	require.NoError(t, err)
	b := setup(t, func(c *api.Config) { c.Secrets = keyring })

	for _, name := range []string{"ANTHROPIC_API_KEY", "git:example.com:8443"} {
		first := b.do("PUT", "/api/secrets/"+name, `{"value":"`+planted+`"}`)
		require.Equal(t, http.StatusCreated, first.status, first.body)
		again := b.do("PUT", "/api/secrets/"+name, `{"value":"`+planted+`2"}`)
		require.Equal(t, http.StatusOK, again.status, again.body)
		opened, err := keyring.Open(name, b.store.Sealed(name))
		require.NoError(t, err)
		require.Equal(t, planted+"2", opened.Reveal())
		require.NotContains(t, string(first.body)+string(again.body), planted)
	}
	bound := b.do("PUT", "/api/secrets/ANTHROPIC_API_KEY", `{"value":"x","hosts":["models.example:8443","api.anthropic.com","api.anthropic.com"]}`)
	require.Equal(t, http.StatusOK, bound.status, bound.body)
	require.Contains(t, string(bound.body), `"hosts":["api.anthropic.com","models.example:8443"]`)
	list := b.do("GET", "/api/secrets", "")
	require.Contains(t, string(list.body), `"hosts":["api.anthropic.com","models.example:8443"]`)
	require.Equal(t, http.StatusOK, list.status)
	require.Contains(t, string(list.body), "git:example.com:8443")
	require.NotContains(t, string(list.body), planted)
	require.NotContains(t, b.logs.String(), planted)

	require.Equal(t, http.StatusNoContent, b.do("DELETE", "/api/secrets/ANTHROPIC_API_KEY", "").status)
	b.do("DELETE", "/api/secrets/ANTHROPIC_API_KEY", "").problem(http.StatusNotFound, "secret_not_found")
}

func TestInvalidSecretsAreRefused(t *testing.T) {
	t.Parallel()
	keyring, err := secret.NewKeyring(bytes.Repeat([]byte{7}, secret.KeyBytes))
	require.NoError(t, err)
	b := setup(t, func(c *api.Config) { c.Secrets = keyring })
	for body, field := range map[string]string{
		`{}`:           "value",
		`{"value":""}`: "value",
		`{"value":5}`:  "value",
		`{"value":"` + strings.Repeat("x", secret.MaxBytes+1) + `"}`: "value",
		`{"value":"x","hosts":[]}`:                                   "hosts",
		`{"value":"x","hosts":"a.example"}`:                          "hosts",
		`{"value":"x","hosts":["https://a.example"]}`:                "hosts",
		`{"value":"x","hosts":["A.example"]}`:                        "hosts",
		`{"value":"x","hosts":["a.example/","b"]}`:                   "hosts",
		`{"value":"x","hosts":["user@a.example"]}`:                   "hosts",
		`{"value":"x","name":"y"}`:                                   "name",
	} {
		p := b.do("PUT", "/api/secrets/A", body).problem(http.StatusBadRequest, "invalid_request")
		require.Equal(t, field, p.Errors[0].Field)
		require.NotContains(t, p.Detail, "xxx", "a value is not repeated")
	}
	p := b.do("PUT", "/api/secrets/lower", `{"value":"x"}`).problem(http.StatusBadRequest, "invalid_request")
	require.Equal(t, "name", p.Errors[0].Field)

	git := b.do("PUT", "/api/secrets/git:git.example", `{"value":"x","hosts":["a.example"]}`).problem(http.StatusBadRequest, "invalid_request")
	require.Equal(t, "hosts", git.Errors[0].Field)

	keyless := setup(t)
	keyless.do("PUT", "/api/secrets/A", `{"value":"x"}`).problem(http.StatusServiceUnavailable, "unavailable")
}
