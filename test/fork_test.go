package test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/npm"
	"github.com/overwinter-dev/overwinter/internal/agent/npm/npmtest"
	opencodeagent "github.com/overwinter-dev/overwinter/internal/agent/opencode"
)

var allForks = flag.Bool("all-forks", false, "fork and revert sessions of every agent in TestEveryAgentIsForkedAndReverted, not only the demo agent's")

// forkPrompts is the number of prompts of a session that is forked before its third.
const forkPrompts = 5

// forkScripts are the model's answers to addN, which adds line N to a file, and show, which prints
// it.
func (a agentUnderTest) forkScripts() map[string][]modelserver.Step {
	scripts := map[string][]modelserver.Step{
		"show": {{Calls: []modelserver.Call{a.run("cat lines.txt; echo that was all of it")}}, {Text: "Shown."}},
	}
	for n := 1; n <= forkPrompts; n++ {
		call := a.run(fmt.Sprintf("echo line %d >> lines.txt; cat lines.txt", n))
		scripts[fmt.Sprint("add", n)] = []modelserver.Step{{Calls: []modelserver.Call{call}}, {Text: fmt.Sprintf("Added %d.", n)}}
	}
	return scripts
}

// TestEveryAgentIsForkedAndReverted forks a session of each agent before the third of its five
// prompts, with an edited prompt, and reverts it to its second: the agent has the memory of that
// point, and the session its files. A run of all tests uses the demo agent, and -all-forks uses all
// agents; keepsItsMemory forks sessions of real agents too.
func TestEveryAgentIsForkedAndReverted(t *testing.T) {
	t.Parallel()
	t.Run("demo", func(t *testing.T) {
		t.Parallel()
		forksTheDemoAgent(t)
	})
	if !*allForks {
		return
	}
	for _, a := range agentsUnderTest {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			models := modelserver.New(a.forkScripts())
			t.Cleanup(models.Close)
			s := startStack(t)
			for name, value := range a.secrets(models) {
				s.must(t, http.StatusCreated, "PUT", "/api/secrets/"+name, object{"value": value})
			}
			id := s.forksARealAgent(t, models, object{"agent": a.name})
			s.revertsARealAgent(t, models, id)
		})
	}
	t.Run("acp", func(t *testing.T) {
		t.Parallel()
		forksAnACPAgent(t)
	})
}

func forksTheDemoAgent(t *testing.T) {
	t.Helper()
	s := startStack(t)
	const show = "recall\n$ cat lines.txt; echo that was all of it"
	id, fork := s.forksBeforeTheThird(t, object{"agent": "demo"}, func(n int) string {
		return fmt.Sprintf("walrus%d\n$ echo line %d >> lines.txt; cat lines.txt", n, n)
	}, show)
	require.Contains(t, s.text(t, fork), "I have had 3 prompts")
	s.prompt(t, id, "recall", "recall")
	require.Equal(t, "completed", s.waitPrompt(t, id, "recall", time.Minute)["status"])
	require.Contains(t, s.text(t, id), "I have had 6 prompts")
	s.revertsToTheSecond(t, id, show)
	require.Contains(t, s.text(t, id), "I have had 3 prompts")
	require.Contains(t, s.text(t, fork), "I have had 3 prompts")
}

// forksAnACPAgent uses OpenCode's own ACP server as the agent.
func forksAnACPAgent(t *testing.T) {
	t.Helper()
	opencode := agentsUnderTest[slices.IndexFunc(agentsUnderTest, func(a agentUnderTest) bool { return a.name == "opencode" })]
	models := modelserver.New(opencode.forkScripts())
	t.Cleanup(models.Close)
	var program npm.Package
	for _, p := range opencodeagent.New().Packages() {
		program = p
	}
	files := httptest.NewServer(http.FileServer(http.Dir(npmtest.Directory(t, program))))
	t.Cleanup(files.Close)
	inSandbox := func(url string) string { return strings.Replace(url, "127.0.0.1", "host.overwinter.internal", 1) }
	config, err := json.Marshal(object{
		"model":    "anthropic/claude-haiku-4-5",
		"provider": object{"anthropic": object{"options": object{"baseURL": inSandbox(models.URL()) + "/v1", "apiKey": plantedKey}}},
	})
	require.NoError(t, err)
	s := startStack(t)
	s.must(t, http.StatusCreated, "POST", "/api/profiles", object{"name": "opencode-acp", "environment": object{
		"OVERWINTER_ACP_COMMAND": `["/usr/local/bin/opencode", "acp"]`, "OPENCODE_CONFIG_CONTENT": string(config),
	}})
	id := s.forksARealAgent(t, models, object{"agent": "acp", "profile": "opencode-acp", "workspace": object{
		"setup": "curl -sSfo /usr/local/bin/opencode " + inSandbox(files.URL) + "/bin/opencode && chmod +x /usr/local/bin/opencode",
	}})
	s.revertsARealAgent(t, models, id)
}

// forksARealAgent forks a session of a real agent and checks its memory by the requests to its
// model.
func (s *stack) forksARealAgent(t *testing.T, models *modelserver.Server, body object) (original string) {
	t.Helper()
	original, _ = s.forksBeforeTheThird(t, body, func(n int) string {
		return fmt.Sprintf("Remember the word walrus%d. {{add%d}}", n, n)
	}, "Edited: the word is otter. {{show}}")
	forked, continued := newestRequest(models, "otter"), newestRequest(models, fmt.Sprint("walrus", forkPrompts))
	remembers(t, continued, forkPrompts)
	remembers(t, forked, 2)
	require.NotContains(t, continued, "otter")
	return original
}

// revertsARealAgent reverts a session of forksARealAgent to its second prompt.
func (s *stack) revertsARealAgent(t *testing.T, models *modelserver.Server, id string) {
	t.Helper()
	s.revertsToTheSecond(t, id, "Reverted: the word is beaver. {{show}}")
	reverted := newestRequest(models, "beaver")
	remembers(t, reverted, 2)
	require.NotContains(t, reverted, "otter")
}

// newestRequest returns the newest request to the model that contains the word.
func newestRequest(models *modelserver.Server, word string) string {
	for _, r := range slices.Backward(models.Requests()) {
		if prompts := strings.Join(r.Prompts, "\n"); strings.Contains(prompts, word) {
			return prompts
		}
	}
	return ""
}

// remembers checks that the model received the words of the first prompts only.
func remembers(t *testing.T, request string, prompts int) {
	t.Helper()
	for n := 1; n <= forkPrompts; n++ {
		word := fmt.Sprintf("walrus%d.", n)
		require.Equal(t, n <= prompts, strings.Contains(request, word), "the agent knows %s: %s", word, request)
	}
}

// revertsToTheSecond reverts a session of forksBeforeTheThird, with its files, to its second prompt: first by the prompt that follows, then,
// when it has worked on, by the bundle that ends with the second. Prompt show prints the file.
func (s *stack) revertsToTheSecond(t *testing.T, id, show string) {
	t.Helper()
	var second string
	for _, b := range s.must(t, http.StatusOK, "GET", "/api/sessions/"+id+"/bundles", nil)["items"].([]any) {
		if b.(object)["message_history_state"].(object)["promptId"] == "p2" {
			second = b.(object)["id"].(string)
		}
	}
	require.NotEmpty(t, second)
	for i, body := range []object{{"promptId": "p3", "files": true}, {"bundleId": second}} {
		s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/revert", body)
		prompt := fmt.Sprint("after", i)
		s.prompt(t, id, prompt, show)
		got := s.waitPrompt(t, id, prompt, 3*time.Minute)
		require.Equal(t, "completed", got["status"], "%v", got)
		said := s.text(t, id)
		require.Contains(t, said, "line 1\nline 2\nthat was all of it", "%v", body)
		require.NotContains(t, said, "line 3", "%v", body)
		require.Equal(t, 1, strings.Count(said, "that was all of it"), "%v: %s", body, said)
	}
}

// forksBeforeTheThird runs three prompts in a session that saves a bundle after each turn, and
// forks it before the third with an edited prompt. The original runs the other two prompts in the
// meantime. Prompt n adds "line n" to a file. The edited prompt prints that file.
func (s *stack) forksBeforeTheThird(t *testing.T, body object, content func(n int) string, edited string) (original, fork string) {
	t.Helper()
	body["options"] = object{"checkpoint": "turn"}
	id := s.create(t, body)
	stream := s.follow(t, id)
	for n := 1; n <= 3; n++ {
		s.prompt(t, id, fmt.Sprint("p", n), content(n))
	}
	require.Equal(t, "completed", s.waitPrompt(t, id, "p3", 4*time.Minute)["status"])

	forked := s.must(t, http.StatusCreated, "POST", "/api/sessions/"+id+"/fork", object{
		"promptId": "p3", "before": true, "prompt": object{"id": "edited", "content": edited},
	})
	fork = forked["id"].(string)
	require.Equal(t, "p2", forked["forkedFrom"].(object)["promptId"])
	for n := 4; n <= forkPrompts; n++ {
		s.prompt(t, id, fmt.Sprint("p", n), content(n))
	}
	got := s.waitPrompt(t, fork, "edited", 3*time.Minute)
	require.Equal(t, "completed", got["status"], "%v", got)
	said := s.text(t, fork)
	require.Contains(t, said, "line 1\nline 2\nthat was all of it", "its files are those of the second prompt")
	require.NotContains(t, said, "line 3")
	woken := s.must(t, http.StatusOK, "GET", "/api/sessions/"+fork, nil)
	require.Equal(t, "full", woken["receipt"].(object)["kind"], "%v", woken["receipt"])

	last := s.waitPrompt(t, id, fmt.Sprint("p", forkPrompts), 3*time.Minute)
	require.Equal(t, "completed", last["status"], "%v", last)
	require.Contains(t, s.text(t, id), "line 1\nline 2\nline 3\nline 4\nline 5")
	require.NotContains(t, s.text(t, id), "that was all of it")
	stream.all(t)
	return id, fork
}
