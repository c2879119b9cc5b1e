package test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
)

// forkPrompts is how many prompts a session has that is forked before its third.
const forkPrompts = 5

// forkScripts are the answers of the model to addN, which adds line N to a file, and show, which prints it.
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

// TestADemoSessionIsForked is what keepsItsMemory does with every real agent.
func TestADemoSessionIsForked(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	id, fork := s.forksBeforeTheThird(t, "demo", func(n int) string {
		return fmt.Sprintf("walrus%d\n$ echo line %d >> lines.txt; cat lines.txt", n, n)
	}, "recall\n$ cat lines.txt; echo that was all of it")
	require.Contains(t, s.text(t, fork), "I have had 3 prompts")
	s.prompt(t, id, "recall", "recall")
	require.Equal(t, "completed", s.waitPrompt(t, id, "recall", time.Minute)["status"])
	require.Contains(t, s.text(t, id), "I have had 6 prompts")
}

// forksARealAgent forks a session of a real agent, whose model has been sent what the session has in its memory.
func (s *stack) forksARealAgent(t *testing.T, a agentUnderTest, models *modelserver.Server) {
	t.Helper()
	s.forksBeforeTheThird(t, a.name, func(n int) string {
		return fmt.Sprintf("Remember the word walrus%d. {{add%d}}", n, n)
	}, "Edited: the word is otter. {{show}}")
	newest := func(word string) string {
		for _, r := range slices.Backward(models.Requests()) {
			if prompts := strings.Join(r.Prompts, "\n"); strings.Contains(prompts, word) {
				return prompts
			}
		}
		return ""
	}
	forked, original := newest("otter"), newest(fmt.Sprint("walrus", forkPrompts))
	for n := 1; n <= forkPrompts; n++ {
		word := fmt.Sprintf("walrus%d.", n)
		require.Contains(t, original, word)
		require.Equal(t, n < 3, strings.Contains(forked, word), "the fork knows %s: %s", word, forked)
	}
	require.NotContains(t, original, "otter")
}

// forksBeforeTheThird has a session that saves a bundle after each turn work on three prompts, and forks it before the third with an
// edited prompt. The original works on the other two meanwhile. Prompt n adds "line n" to a file, edited prints that file.
func (s *stack) forksBeforeTheThird(t *testing.T, agent string, content func(n int) string, edited string) (original, fork string) {
	t.Helper()
	id := s.create(t, object{"agent": agent, "options": object{"checkpoint": "turn"}})
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
