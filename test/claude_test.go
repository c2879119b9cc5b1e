package test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
)

// TestClaudeCode runs the real program, installed into an image from its pinned package, against a
// model server, in one system for all of its tests.
func TestClaudeCode(t *testing.T) { //nolint:tparallel // one test after the other: one kills the worker of all
	t.Parallel()
	models := modelserver.New(map[string][]modelserver.Step{
		"file":   {{Text: "I write it.", Calls: []modelserver.Call{modelserver.Bash("echo from claude > made.txt && cat made.txt")}}, {Text: "Written."}},
		"again":  {{Calls: []modelserver.Call{modelserver.Bash("cat made.txt")}}, {Text: "It is there.", Recall: true}},
		"slow":   {{Text: strings.Repeat("zebra ", 400), Pause: 50 * time.Millisecond}},
		"failed": {{Status: http.StatusBadRequest}},
		"touch":  {{Text: "May I?", Calls: []modelserver.Call{modelserver.Bash("touch permitted && echo touched")}}, {Text: "So be it."}},
		"colour": {{Calls: []modelserver.Call{modelserver.Ask("Which colour?", "Red", "Blue")}}, {Text: "Thank you."}},
	})
	t.Cleanup(models.Close)
	s := startStack(t)
	for name, value := range map[string]string{"ANTHROPIC_API_KEY": "sk-planted-key", "ANTHROPIC_BASE_URL": models.URL()} {
		s.must(t, http.StatusCreated, "PUT", "/api/secrets/"+name, object{"value": value})
	}
	t.Run("remembers after hibernation", func(t *testing.T) { s.claudeRemembers(t, models) }) //nolint:paralleltest // see above
	t.Run("asks people", s.claudeAsksPeople)                                                  //nolint:paralleltest // see above
}

// claudeRemembers tests text, a tool that writes a file, hibernation, a wake, and a second prompt
// whose request to the model holds the first.
func (s *stack) claudeRemembers(t *testing.T, models *modelserver.Server) {
	id := s.create(t, object{"agent": "claude-sdk", "prompt": object{"id": "first", "content": "Please remember the word narwhal. {{file}}"}})
	stream := s.follow(t, id)
	first := s.waitPrompt(t, id, "first", 4*time.Minute) // the image is built once
	require.Equal(t, "completed", first["status"], "%v", first)
	require.Contains(t, s.text(t, id), "Written.")
	require.Contains(t, s.text(t, id), "from claude")

	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/hibernate", nil)
	s.waitStatus(t, id, "hibernated", 60*time.Second)
	s.prompt(t, id, "second", "Is it still there? {{again}}")
	second := s.waitPrompt(t, id, "second", 2*time.Minute)
	require.Equal(t, "completed", second["status"], "%v", second)
	require.Contains(t, s.text(t, id), "It is there.")
	requests := models.Requests()
	last := requests[len(requests)-1]
	require.Contains(t, strings.Join(last.Prompts, "\n"), "narwhal", "the agent has its memory")
	require.Equal(t, "sk-planted-key", last.Key)
	got := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)
	require.Equal(t, "full", got["receipt"].(object)["kind"])
	require.Positive(t, got["metrics"].(object)["inputTokens"])

	s.prompt(t, id, "slow", "{{slow}}")
	stream.wait(t, 60*time.Second, "the agent speaks", func(e event) bool {
		return e.Type == "text_delta" && strings.Contains(string(e.Data), "zebra")
	})
	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/abort", nil)
	slow := s.waitPrompt(t, id, "slow", within)
	require.Equal(t, "cancelled", slow["status"], "%v", slow)

	s.prompt(t, id, "failed", "{{failed}}")
	failed := s.waitPrompt(t, id, "failed", 60*time.Second)
	require.Equal(t, "failed", failed["status"], "%v", failed)
	stream.all(t)
}
