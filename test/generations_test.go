package test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
)

// generations is the number of sandboxes that a session uses in these tests.
const generations = 5

// TestSessionOutlivesFiveSandboxes uses sandboxes with a lifetime of seconds while a session works
// without a pause: every prompt completes, once and in order, and the last sandbox has the files
// and the memory of all of them.
func TestSessionOutlivesFiveSandboxes(t *testing.T) {
	t.Parallel()
	t.Run("demo", func(t *testing.T) {
		t.Parallel()
		s := startStackEnv(t, []string{"OVERWINTER_SANDBOX_TIMEOUT=40s"})
		worked := worksThroughGenerations(t, s, "demo", func(n int) string {
			return fmt.Sprintf("recall\n$ sleep 2; echo line %d >> lines.txt; cat lines.txt", n)
		})
		text := s.text(t, worked.id)
		require.Contains(t, text, fmt.Sprintf("%d prompts", worked.prompts))
	})
	t.Run("claude-sdk", func(t *testing.T) {
		inShortForm(t, "claude-sdk", "demo")
		t.Parallel()
		scripts := map[string][]modelserver.Step{}
		for n := range 500 {
			line := modelserver.Bash(fmt.Sprintf("sleep 2; echo line %d >> lines.txt; cat lines.txt", n))
			scripts[fmt.Sprintf("add%d", n)] = []modelserver.Step{{Calls: []modelserver.Call{line}}, {Text: "Added."}}
		}
		models := modelserver.New(scripts)
		t.Cleanup(models.Close)
		s := startStackEnv(t, []string{"OVERWINTER_SANDBOX_TIMEOUT=1m"})
		for name, value := range map[string]string{"ANTHROPIC_API_KEY": plantedKey, "ANTHROPIC_BASE_URL": models.URL()} {
			s.must(t, http.StatusCreated, "PUT", "/api/secrets/"+name, object{"value": value})
		}
		// The agent's image is built before the lifetime of a sandbox begins.
		s.waitStatus(t, s.create(t, object{"agent": "claude-sdk", "prompt": object{"id": "first", "content": "{{add499}}"}}), "running", 4*time.Minute)
		worked := worksThroughGenerations(t, s, "claude-sdk", func(n int) string {
			return fmt.Sprintf("Remember the word narwhal%d. {{add%d}}", n, n)
		})
		requests := models.Requests()
		memory := strings.Join(requests[len(requests)-1].Prompts, "\n")
		for n := range worked.prompts {
			require.Contains(t, memory, fmt.Sprintf("narwhal%d.", n), "the agent has its memory")
		}
	})
}

// workedThrough is a session that has used all generations, with the number of its prompts.
type workedThrough struct {
	id      string
	prompts int
}

// worksThroughGenerations sends prompts, two at a time, until the session has worked in the last generation. Prompt n appends
// "line n" to a file and prints it.
func worksThroughGenerations(t *testing.T, s *stack, agent string, content func(n int) string) workedThrough {
	t.Helper()
	id := s.create(t, object{"agent": agent, "idleTimeout": "1h"})
	stream := s.follow(t, id)
	n, generation := 0, 0.0
	for deadline := time.Now().Add(15 * time.Minute); generation < generations; {
		require.True(t, time.Now().Before(deadline), "it is in generation %v after %d prompts", generation, n)
		for range 2 {
			s.prompt(t, id, fmt.Sprint("p", n), content(n))
			n++
		}
		for _, p := range []int{n - 2, n - 1} {
			got := s.waitPrompt(t, id, fmt.Sprint("p", p), 3*time.Minute)
			require.Equal(t, "completed", got["status"], "%v", got)
		}
		generation = s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)["generation"].(float64)
	}
	got := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)
	require.Equal(t, "full", got["receipt"].(object)["kind"])

	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "line %d\n", i)
	}
	require.Contains(t, s.text(t, id), strings.TrimSpace(lines.String()), "no line is missing, and none is there twice")
	moves := 0
	for _, e := range stream.all(t) {
		if e.Type == "status" && strings.Contains(string(e.Data), `"hibernating"`) && strings.Contains(string(e.Data), `"lifetime"`) {
			moves++
		}
		require.NotEqual(t, "error", e.Type, "%s", e.Data)
	}
	require.GreaterOrEqual(t, moves, generations-1)
	t.Logf("%d prompts in %v generations", n, generation)
	return workedThrough{id: id, prompts: n}
}
