package test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestModesOutliveLostParts: what is collected runs as one, and a steer comes first, whichever part is killed.
func TestModesOutliveLostParts(t *testing.T) { //nolint:tparallel // one part after the other, all of one system
	t.Parallel()
	s := startStack(t)
	for _, c := range []struct { //nolint:paralleltest // see above
		name, part string
		test       func(t *testing.T, s *stack, kill func())
	}{
		{"collect, api", "api", collectedRunAsOne},
		{"collect, worker", "worker", collectedRunAsOne},
		{"steer, api", "api", steerComesFirst("cancelled")},
		{"steer, worker", "worker", steerComesFirst("cancelled", "completed")}, // it may end while there is no worker
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(t, s, func() { require.NoError(t, syscall.Kill(s.child(t, "overwinter "+c.part), syscall.SIGKILL)) })
		})
	}
}

func (s *stack) promptAs(t *testing.T, sessionID, mode, id, content string) {
	t.Helper()
	s.insist(t, "POST", "/api/sessions/"+sessionID+"/prompts", object{"id": id, "content": content, "mode": mode})
}

func collectedRunAsOne(t *testing.T, s *stack, kill func()) {
	t.Helper()
	id := s.create(t, object{})
	s.prompt(t, id, "first", "hello")
	require.Equal(t, "completed", s.waitPrompt(t, id, "first", 60*time.Second)["status"])
	for _, name := range []string{"one", "two", "three"} {
		s.promptAs(t, id, "collect", name, "write "+name+".txt: x")
	}
	kill()
	one := s.waitPrompt(t, id, "one", 90*time.Second)
	require.Equal(t, "completed", one["status"], "%v", one)
	for _, name := range []string{"two", "three"} {
		p := s.waitPrompt(t, id, name, 90*time.Second)
		require.Equal(t, []any{"completed", "collected", "one", one["runId"]}, []any{p["status"], p["reason"], p["joinedTo"], p["runId"]})
	}
}

// steerComesFirst returns a test of which the turn that is to be interrupted may have these outcomes.
func steerComesFirst(outcomes ...string) func(t *testing.T, s *stack, kill func()) {
	return func(t *testing.T, s *stack, kill func()) {
		t.Helper()
		turn := s.startTurn(t)
		s.promptAs(t, turn.session, "steer", "steer", "instead")
		kill()
		prompts := map[string]object{}
		for _, id := range []string{"slow", "steer", "next"} {
			prompts[id] = s.waitPrompt(t, turn.session, id, 90*time.Second)
		}
		require.Contains(t, outcomes, prompts["slow"]["status"])
		if prompts["slow"]["status"] == "cancelled" {
			require.Equal(t, "steered", prompts["slow"]["reason"])
		}
		require.Equal(t, []any{"completed", "completed"}, []any{prompts["steer"]["status"], prompts["next"]["status"]})
		require.Less(t, prompts["steer"]["startedAt"], prompts["next"]["startedAt"], "it was first")
	}
}
