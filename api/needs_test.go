package api_test

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/demo"
	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// needy is an agent that needs a key or, alternatively, a token.
type needy struct{}

func (needy) Names() []string { return []string{"needy"} }

func (needy) Describe() []agent.Description {
	return []agent.Description{{Name: "needy", Version: "1.2.3", Secrets: []agent.Need{
		{Name: "NEEDY_KEY", Required: true, Alternatives: []string{"NEEDY_TOKEN"}}, {Name: "NEEDY_TOKEN"},
	}}}
}

// Get returns the adapter of another agent, because archives may contain the memory of that agent.
func (needy) Get(string) (agent.Adapter, error) { return demo.New(), nil }

// needsKey is the message if the key of needy is missing.
const needsKey = "the agent needy needs NEEDY_KEY, which is not stored: store it with PUT /api/secrets/NEEDY_KEY, " +
	"or set it in the environment of a profile; instead of it the agent takes NEEDY_TOKEN"

func setupNeedy(t *testing.T) *harness {
	t.Helper()
	keyring, err := secret.NewKeyring(bytes.Repeat([]byte{7}, secret.KeyBytes))
	require.NoError(t, err)
	return setup(t, func(c *api.Config) { c.Agents, c.Secrets = needy{}, keyring })
}

func TestAgentsListTheirSecrets(t *testing.T) {
	t.Parallel()
	b := setupNeedy(t)
	list := func(present string) string {
		return `{"items":[{"name":"needy","title":"","summary":"","version":"1.2.3","models":[],"capabilities":[],"secrets":[
			{"name":"NEEDY_KEY","required":true,"alternatives":["NEEDY_TOKEN"],"present":false},
			{"name":"NEEDY_TOKEN","required":false,"present":` + present + `}]}],"nextCursor":null}`
	}
	require.JSONEq(t, list("false"), string(b.do("GET", "/api/agents", "").body))
	require.Equal(t, http.StatusCreated, b.do("PUT", "/api/secrets/NEEDY_TOKEN", `{"value":"0123456789"}`).status)
	require.JSONEq(t, list("true"), string(b.do("GET", "/api/agents", "").body))
}

func TestCreateWarnsOfUnlistedModel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := func(body string) resource.SessionJSON {
		a := b.do("POST", "/api/sessions", body)
		require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
		return a.session()
	}
	require.Equal(t, []resource.WarningJSON{{
		Code: "model_unlisted", Field: "options.model",
		Detail: `the agent other does not list the model "m2", which is passed on unchanged; GET /api/agents lists its models`,
	}}, made(`{"agent":"other","options":{"model":"m2"}}`).Warnings)
	require.Empty(t, made(`{"agent":"other","options":{"model":"m1"}}`).Warnings)
	require.Empty(t, made(`{"agent":"demo","options":{"model":"m2"}}`).Warnings, "an agent without a list")
}

func TestPromptIsRefusedWhileItsAgentLacksSecret(t *testing.T) {
	t.Parallel()
	b := setupNeedy(t)
	for _, body := range []string{`{"agent":"needy","prompt":{"content":"hello"}}`, `{"agent":"needy","sandbox":"eager"}`} {
		require.Equal(t, needsKey, b.do("POST", "/api/sessions", body).problem(http.StatusConflict, "secret_missing").Detail)
	}
	a := b.do("POST", "/api/sessions", `{"agent":"needy"}`)
	require.Equal(t, http.StatusCreated, a.status, "a secret may be stored later")
	made := a.session()
	require.Equal(t, []resource.WarningJSON{{Code: "secret_missing", Field: "agent", Detail: needsKey}}, made.Warnings)

	prompt := func() answer {
		return b.do("POST", "/api/sessions/"+made.ID+"/prompts", `{"id":"p1","content":"hello"}`)
	}
	require.Equal(t, needsKey, prompt().problem(http.StatusConflict, "secret_missing").Detail)
	require.Equal(t, http.StatusCreated, b.do("PUT", "/api/secrets/NEEDY_TOKEN", `{"value":"0123456789"}`).status)
	require.Equal(t, http.StatusAccepted, prompt().status, "the alternative is enough")
	require.Equal(t, http.StatusNoContent, b.do("DELETE", "/api/secrets/NEEDY_TOKEN", "").status)
	require.Equal(t, http.StatusOK, prompt().status, "it is stored already")
}

func TestRepeatedCreateDoesNotRequireSecret(t *testing.T) {
	t.Parallel()
	b := setupNeedy(t)
	create := func() answer {
		return b.do("POST", "/api/sessions", `{"agent":"needy","prompt":{"content":"hello"}}`, "Idempotency-Key", "k1")
	}
	create().problem(http.StatusConflict, "secret_missing")
	require.Equal(t, http.StatusCreated, b.do("PUT", "/api/secrets/NEEDY_TOKEN", `{"value":"0123456789"}`).status)
	first := create()
	require.Equal(t, http.StatusCreated, first.status, "a refusal does not use the key up")
	require.Equal(t, http.StatusNoContent, b.do("DELETE", "/api/secrets/NEEDY_TOKEN", "").status)
	again := create()
	require.Equal(t, http.StatusOK, again.status, "%s", again.body)
	require.Equal(t, first.session().ID, again.session().ID)
}

func TestProfileVariableSatisfiesSecret(t *testing.T) {
	t.Parallel()
	b := setupNeedy(t)
	for name, fields := range map[string]string{
		"variable": `"environment":{"NEEDY_KEY":"none"}`, "alternative": `"environment":{"NEEDY_TOKEN":"none"}`,
		"file": `"files":[{"path":".claude/settings.json","content":"{}"}]`,
	} {
		require.Equal(t, http.StatusCreated, b.do("POST", "/api/profiles", `{"name":"`+name+`",`+fields+`}`).status)
		a := b.do("POST", "/api/sessions", `{"agent":"needy","profile":"`+name+`","prompt":{"content":"hello"}}`)
		require.Equal(t, http.StatusCreated, a.status, "%s: %s", name, a.body)
		require.Equal(t, http.StatusAccepted, b.do("POST", "/api/sessions/"+a.session().ID+"/prompts", `{"content":"again"}`).status)
	}
	require.Equal(t, http.StatusCreated, b.do("POST", "/api/profiles", `{"name":"other","environment":{"NEEDY":"x"}}`).status)
	require.Equal(t, http.StatusConflict, b.do("POST", "/api/sessions", `{"agent":"needy","profile":"other","prompt":{"content":"hello"}}`).status)
}

// TestForkIsRefusedWhileItsAgentLacksSecret forks a session of another agent, which needs no
// secret.
func TestForkIsRefusedWhileItsAgentLacksSecret(t *testing.T) {
	t.Parallel()
	b := setupNeedy(t)
	id := b.store.Put(session.Running)
	b.store.With(id, func(r *apitest.Row) {
		r.Bundles = []bundle.View{{Bundle: bundle.Bundle{ID: session.NewID(session.BundlePrefix), SessionID: id}, PromptID: "p2"}}
	})
	fork := func(body string) answer { return b.do("POST", "/api/sessions/"+id+"/fork", body) }
	run := func() answer {
		return b.do("POST", "/api/runs", `{"baseSessionId":"`+id+`","fork":true,"agent":"needy","input":"x"}`)
	}
	const asked = `{"promptId":"p2","agent":"needy","prompt":{"content":"hello"}}`
	require.Equal(t, needsKey, fork(asked).problem(http.StatusConflict, "secret_missing").Detail)
	require.Equal(t, needsKey, run().problem(http.StatusConflict, "secret_missing").Detail)
	without := fork(`{"promptId":"p2","agent":"needy"}`)
	require.Equal(t, http.StatusCreated, without.status, "a secret may be stored later: %s", without.body)
	require.Equal(t, []resource.WarningJSON{{Code: "secret_missing", Field: "agent", Detail: needsKey}}, without.session().Warnings)
	require.Equal(t, http.StatusCreated, fork(`{"promptId":"p2"}`).status)
	require.Equal(t, http.StatusCreated, b.do("PUT", "/api/secrets/NEEDY_KEY", `{"value":"0123456789"}`).status)
	require.Equal(t, http.StatusCreated, fork(asked).status)
	require.Equal(t, http.StatusAccepted, run().status)
}
