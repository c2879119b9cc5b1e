package test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/npm"
	"github.com/overwinter-dev/overwinter/internal/agent/npm/npmtest"
	opencodeagent "github.com/overwinter-dev/overwinter/internal/agent/opencode"
)

// reachingOut is a real agent in a system that it shares with others.
type reachingOut struct {
	agentUnderTest
	session object // the request that creates one of its sessions
	tools   string // precedes the names of overwinter's tools
}

// TestEveryAgentReachesPeople makes each real agent use the tools of overwinter while workers are
// killed, and ask a question whose answer arrives after its sandbox was terminated.
func TestEveryAgentReachesPeople(t *testing.T) { //nolint:tparallel // one agent after the other: each kills the worker of all
	t.Parallel()
	scripts := map[string][]modelserver.Step{}
	models := modelserver.New(scripts)
	t.Cleanup(models.Close)
	s := startStackEnv(t, []string{"OVERWINTER_PARK_AFTER=3s"})
	agents := s.reachingOut(t, models)
	secrets := map[string]string{}
	for _, a := range agents {
		a.script(scripts)
		maps.Copy(secrets, a.secrets(models))
	}
	for name, value := range secrets {
		s.must(t, http.StatusCreated, "PUT", "/api/secrets/"+name, object{"value": value})
	}
	for _, a := range agents { //nolint:paralleltest // see above
		t.Run(a.name, func(t *testing.T) {
			inShortForm(t, a.name, "acp")
			id := s.create(t, a.session)
			stream := s.follow(t, id)
			s.prompt(t, id, "first", "hello")
			require.Equal(t, "completed", s.waitPrompt(t, id, "first", 4*time.Minute)["status"], "the image is made once")
			s.usesItsTools(t, a, id, stream)
			s.asksInItsSleep(t, a, id, stream)
		})
	}
}

// reachingOut lists the agents with the profiles that they need.
func (s *stack) reachingOut(t *testing.T, models *modelserver.Server) (agents []reachingOut) {
	t.Helper()
	// The model that Codex chooses by default calls the tools from JavaScript.
	prefixes := map[string]string{"claude-sdk": "mcp__overwinter__", "codex": "mcp__overwinter__", "opencode": "overwinter_", "gemini-cli": "mcp_overwinter_"}
	var opencode agentUnderTest
	for _, a := range agentsUnderTest {
		if a.name == "opencode" {
			opencode = a
		}
		agents = append(agents, reachingOut{agentUnderTest: a, session: object{"agent": a.name}, tools: prefixes[a.name]})
	}
	// OpenCode's own ACP server is the agent acp.
	var program npm.Package
	for _, p := range opencodeagent.New().Packages() {
		program = p
	}
	files := httptest.NewServer(http.FileServer(http.Dir(npmtest.Directory(t, program))))
	t.Cleanup(files.Close)
	inSandbox := func(url string) string { return strings.Replace(url, "127.0.0.1", "host.overwinter.internal", 1) }
	config, err := json.Marshal(object{
		"model":      "anthropic/claude-haiku-4-5",
		"permission": object{"bash": "ask"},
		"provider":   object{"anthropic": object{"options": object{"baseURL": inSandbox(models.URL()) + "/v1", "apiKey": plantedKey}}},
	})
	require.NoError(t, err)
	s.must(t, http.StatusCreated, "POST", "/api/profiles", object{"name": "opencode-acp", "environment": object{
		"OVERWINTER_ACP_COMMAND": `["/usr/local/bin/opencode", "acp"]`, "OPENCODE_CONFIG_CONTENT": string(config),
	}})
	opencode.name, opencode.secrets = "acp", func(*modelserver.Server) map[string]string { return nil }
	return append(agents, reachingOut{agentUnderTest: opencode, tools: prefixes["opencode"], session: object{
		"agent": "acp", "profile": "opencode-acp", "workspace": object{
			"setup": "curl -sSfo /usr/local/bin/opencode " + inSandbox(files.URL) + "/bin/opencode && chmod +x /usr/local/bin/opencode",
		},
	}})
}

// script adds the actions of the agent's model.
func (a reachingOut) script(scripts map[string][]modelserver.Step) {
	const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	tool := func(name string, input object) modelserver.Step {
		return modelserver.Step{Calls: []modelserver.Call{{Tool: a.tools + name, Input: input}}}
	}
	scripts["tools-"+a.name] = []modelserver.Step{
		{Calls: []modelserver.Call{a.run("echo " + pixel + " | base64 -d > shot.png")}},
		tool("set_title", object{"title": "Named by " + a.name}),
		tool("save_screenshot", object{"path": "shot.png", "description": "one pixel"}),
		tool("report_git_state", object{"branch": "feature", "commit": "0123456789abcdef0123456789abcdef01234567"}),
		tool("request_review", object{"title": "Please look", "description": "at everything"}),
		tool("create_pr", object{"title": "It works", "branch": "feature", "body": "It does."}),
		tool("update_pr", object{"number": 7, "state": "open"}),
		tool("session_message", object{"to": "self", "message": "Reminder of " + a.name}),
		{Text: "All is reported."},
	}
	call := a.run("touch permitted && echo touched # {{again-" + a.name + "}}")
	scripts["touch-"+a.name] = []modelserver.Step{{Text: "May I?", Calls: []modelserver.Call{call}}}
	// The message with which the agent is resumed quotes the call.
	scripts["again-"+a.name] = []modelserver.Step{{Text: "Again, then.", Calls: []modelserver.Call{call}}, {Text: "So be it."}}
}

// usesItsTools checks that each call takes effect once, whichever worker runs.
func (s *stack) usesItsTools(t *testing.T, a reachingOut, id string, stream *follower) {
	t.Helper()
	s.prompt(t, id, "tools", "{{tools-"+a.name+"}} now")
	title := "Named by " + a.name
	// OpenCode names its sessions by itself too.
	reports := func(e event) bool {
		return e.RunID != "" && (e.Type != "title" || strings.Contains(string(e.Data), title))
	}
	for _, kind := range []string{"title", "screenshot", "pull_request"} {
		stream.wait(t, 2*time.Minute, "the agent has reported "+kind, func(e event) bool { return e.Type == kind && reports(e) })
		s.killChild(t, "overwinter", "worker")
	}
	require.Equal(t, "completed", s.waitPrompt(t, id, "tools", 3*time.Minute)["status"])
	effects := map[string]int{}
	for _, e := range stream.all(t) {
		var data struct{ Source, Operation string }
		switch e.Type {
		case "title", "screenshot", "git_state", "review_requested", "pull_request":
			require.NoError(t, json.Unmarshal(e.Data, &data))
			if reports(e) && data.Source != "workspace" {
				effects[e.Type+data.Operation]++
			}
		}
	}
	require.Equal(t, map[string]int{
		"title": 1, "screenshot": 1, "git_state": 1, "review_requested": 1, "pull_requestcreate": 1, "pull_requestupdate": 1,
	}, effects)
	require.Contains(t, s.text(t, id), "All is reported.")
	require.Len(t, s.must(t, http.StatusOK, "GET", "/api/sessions/"+id+"/screenshots", nil)["items"], 1)

	var messages []string
	for _, item := range s.must(t, http.StatusOK, "GET", "/api/sessions/"+id+"/prompts", nil)["items"].([]any) {
		if p := item.(object); p["author"] == "agent:"+id {
			require.Contains(t, p["content"], "Reminder of "+a.name)
			messages = append(messages, p["id"].(string))
		}
	}
	require.Len(t, messages, 1)
	require.Equal(t, "completed", s.waitPrompt(t, id, messages[0], 2*time.Minute)["status"])
}

// asksInItsSleep checks that an answer reaches an agent although its sandbox was terminated after
// the question: with the memory of its question it repeats the allowed call, and no second question
// is asked.
func (s *stack) asksInItsSleep(t *testing.T, a reachingOut, id string, stream *follower) {
	t.Helper()
	s.must(t, http.StatusOK, "PATCH", "/api/sessions/"+id, object{"options": object{"permissions": "ask"}})
	s.prompt(t, id, "asks", "{{touch-"+a.name+"}} it")
	question := s.asked(t, id)
	s.asleep(t, id)
	s.killChild(t, "overwinter", "worker")
	s.answer(t, id, question, object{"answer": "once"})
	require.Equal(t, "completed", s.waitPrompt(t, id, "asks", 3*time.Minute)["status"])
	text := s.text(t, id)
	require.Contains(t, text, "So be it.")
	require.Contains(t, text, "touched")
	page := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id+"/questions", nil)
	require.Len(t, page["items"], 1, "people are asked once: %v", page)
	restored := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)
	require.Equal(t, "full", restored["receipt"].(object)["kind"])
	resolved := 0
	for _, e := range stream.all(t) {
		if e.Type == "question_resolved" {
			resolved++
		}
	}
	require.Equal(t, 1, resolved)
}
