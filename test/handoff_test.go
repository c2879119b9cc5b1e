package test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
)

// TestSessionIsForkedWithAnotherAgent forks a session of the demo agent with Claude Code, whose
// worker is killed during the installation in the sandbox, and that fork with Codex. Each fork has
// the files of its point and gets the conversation. A failed installation is reported.
func TestSessionIsForkedWithAnotherAgent(t *testing.T) {
	t.Parallel()
	claude, codex := agentsUnderTest[0], agentsUnderTest[1]
	scripts := map[string][]modelserver.Step{}
	maps.Copy(scripts, claude.forkScripts())
	scripts["print"] = codex.forkScripts()["show"]
	models := modelserver.New(scripts)
	t.Cleanup(models.Close)
	s := startStack(t)
	secrets := claude.secrets(models)
	maps.Copy(secrets, codex.secrets(models))
	for name, value := range secrets {
		s.must(t, http.StatusCreated, "PUT", "/api/secrets/"+name, object{"value": value})
	}
	id := s.create(t, object{"agent": "demo", "options": object{"checkpoint": "turn", "model": "theirs"}})
	add := func(n int) {
		prompt := fmt.Sprint("p", n)
		s.prompt(t, id, prompt, fmt.Sprintf("walrus%d\n$ echo line %d >> lines.txt; cat lines.txt", n, n))
		require.Equal(t, "completed", s.waitPrompt(t, id, prompt, time.Minute)["status"])
	}
	add(1)
	add(2)

	refused := s.must(t, http.StatusConflict, "POST", "/api/sessions/"+id+"/fork", object{
		"promptId": "p1", "agent": "gemini-cli", "prompt": object{"content": "hello"},
	})
	require.Equal(t, "secret_missing", refused["code"], "%v", refused)

	first := s.forkTo(t, id, claude.name, object{"promptId": "p2", "before": true, "prompt": object{"id": "edited", "content": "Edited: the word is otter. {{show}}"}})
	s.follow(t, first).wait(t, 2*time.Minute, "the agent is being installed", func(e event) bool {
		return e.Type == "setup" && strings.Contains(string(e.Data), `"image"`)
	})
	s.killChild(t, "overwinter", "worker")
	add(3) // the original continues
	require.Equal(t, "completed", s.waitPrompt(t, first, "edited", 4*time.Minute)["status"])
	s.wasHandedOver(t, first, "demo", "line 1\nthat was all of it")
	require.NotContains(t, s.text(t, first), "line 2")
	got := asked(models, "otter")
	require.Contains(t, got, "Another agent, demo, has worked in this session")
	require.Contains(t, got, "User: walrus1")
	require.NotContains(t, got, "walrus2")

	// From then on the agent has its own memory, also in a fork.
	s.prompt(t, first, "next", "And now a seal. {{show}}")
	require.Equal(t, "completed", s.waitPrompt(t, first, "next", 2*time.Minute)["status"])
	got = asked(models, "a seal")
	require.Contains(t, got, "otter")
	require.Equal(t, 1, strings.Count(got, "Another agent, demo"), "the note is in its memory once")

	second := s.forkTo(t, first, codex.name, object{"promptId": "next", "prompt": object{"id": "edited", "content": "Think of a heron. {{print}}"}})
	require.Equal(t, "completed", s.waitPrompt(t, second, "edited", 4*time.Minute)["status"])
	s.wasHandedOver(t, second, claude.name, "line 1\nthat was all of it")
	got = asked(models, "heron")
	for _, text := range []string{"Another agent, " + claude.name, "User: walrus1", "otter", "a seal", "Agent: Shown."} {
		require.Contains(t, got, text)
	}

	// A failed installation is reported and does not affect the original.
	s.must(t, http.StatusCreated, "PUT", "/api/secrets/GEMINI_API_KEY", object{"value": plantedKey})
	s.prompt(t, id, "break", "$ mkdir -p /usr/local/bin; for d in /usr/local/bin /usr/bin /bin; do printf '#!/bin/sh\\necho no npm today >&2; exit 3\\n' > $d/npm; chmod +x $d/npm; done")
	require.Equal(t, "completed", s.waitPrompt(t, id, "break", time.Minute)["status"])
	third := s.forkTo(t, id, "gemini-cli", object{"promptId": "break", "prompt": object{"id": "x", "content": "hello"}})
	for range 2 {
		s.waitStatus(t, third, "error", 2*time.Minute)
		failed := s.must(t, http.StatusOK, "GET", "/api/sessions/"+third, nil)
		require.Contains(t, failed["statusReason"], "install gemini-cli in the sandbox of another agent")
		require.Contains(t, failed["statusReason"], "no npm today")
		s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+third+"/recover", nil)
		s.waitStatus(t, third, "restoring", time.Minute)
	}
	add(4)
}

// forkTo forks a session with another agent.
func (s *stack) forkTo(t *testing.T, id, agent string, body object) string {
	t.Helper()
	body["agent"] = agent
	var fork object
	eventually(t, time.Minute, "the bundle of the turn is saved", func() error {
		status, answer, err := s.call("POST", "/api/sessions/"+id+"/fork", body)
		if err == nil && status != http.StatusCreated {
			err = fmt.Errorf("%d: %v", status, answer)
		}
		fork = answer
		return err
	})
	require.Equal(t, agent, fork["agent"])
	require.NotContains(t, fork["options"], "model")
	return fork["id"].(string)
}

// wasHandedOver checks the receipt and the conversation of a fork with another agent.
func (s *stack) wasHandedOver(t *testing.T, id, from, shown string) {
	t.Helper()
	said := s.text(t, id)
	require.Contains(t, said, shown, "its files are those of the point")
	require.NotContains(t, said, "Another agent", "the conversation does not show the note")
	got := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)
	require.Equal(t, from, got["forkedFrom"].(object)["agent"])
	receipt := got["receipt"].(object)
	require.Equal(t, "partial", receipt["kind"], "%v", receipt)
	require.Equal(t, from, receipt["handedFrom"])
	require.Equal(t, []any{"memory of " + from + ": the agent has the conversation as a note"}, receipt["missing"])
	why := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id+"/why?of=receipt", nil)
	require.Contains(t, fmt.Sprint(why), "handed_over")
}

// asked returns the newest request to a model that contains a text.
func asked(models *modelserver.Server, text string) string {
	for _, body := range slices.Backward(strings.Split(models.Sent(), "\n")) {
		if strings.Contains(body, text) {
			return body
		}
	}
	return ""
}
