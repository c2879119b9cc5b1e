package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestModesSurviveLostParts checks that, whichever part is killed, collected prompts run as one,
// and a steer reaches the turn, or runs next if the turn is interrupted.
func TestModesSurviveLostParts(t *testing.T) { //nolint:tparallel // one part after the other, all of one system
	t.Parallel()
	s := startStack(t)
	for _, c := range []struct { //nolint:paralleltest // see above
		name, part string
		test       func(t *testing.T, s *stack, kill func())
	}{
		{"collect, api", "api", collectedRunAsOne},
		{"collect, worker", "worker", collectedRunAsOne},
		{"steer into the turn, api", "api", steerReachesTheTurn(false)},
		{"steer into the turn, worker", "worker", steerReachesTheTurn(false)},
		{"steer that the turn has, worker", "worker", steerReachesTheTurn(true)},
		{"steer, api", "api", steerComesFirst("cancelled")},
		{"steer, worker", "worker", steerComesFirst("cancelled", "completed")}, // the turn may end while no worker runs
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(t, s, func() { s.killChild(t, "overwinter "+c.part) })
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

// steerComesFirst returns a test in which the interrupted turn may have these outcomes.
func steerComesFirst(outcomes ...string) func(t *testing.T, s *stack, kill func()) {
	return func(t *testing.T, s *stack, kill func()) {
		t.Helper()
		turn := s.startTurn(t)
		// With another policy than that of the turn's prompt, it does not join the turn.
		s.insist(t, "POST", "/api/sessions/"+turn.session+"/prompts", object{"id": "steer", "content": "instead", "mode": "steer", "onUnknown": "fail"})
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

// steerReachesTheTurn returns a test of a prompt that joins the turn, in which the part is killed
// at once or after the worker has taken the prompt.
func steerReachesTheTurn(taken bool) func(t *testing.T, s *stack, kill func()) {
	return func(t *testing.T, s *stack, kill func()) {
		t.Helper()
		turn := s.startTurn(t)
		s.promptAs(t, turn.session, "steer", "steer", "into the turn")
		if taken {
			eventually(t, 60*time.Second, "the worker has taken the prompt", func() error {
				if got := s.insist(t, "GET", "/api/sessions/"+turn.session+"/prompts/steer", nil); got["joinedTo"] != "slow" {
					return fmt.Errorf("it is %v", got)
				}
				return nil
			})
		}
		kill()
		prompts := map[string]object{}
		for _, id := range []string{"slow", "steer", "next"} {
			prompts[id] = s.waitPrompt(t, turn.session, id, 90*time.Second)
			require.Equal(t, "completed", prompts[id]["status"], "%v", prompts[id])
		}
		steer := prompts["steer"]
		if steer["joinedTo"] != nil { // the agent may have ended the turn before the next worker could send the prompt
			require.Equal(t, []any{"slow", "joined", prompts["slow"]["runId"]}, []any{steer["joinedTo"], steer["reason"], steer["runId"]})
		}
		require.Less(t, steer["startedAt"], prompts["next"]["startedAt"])
		said := 0
		for _, thread := range s.conversations(t, turn.session) {
			for _, block := range thread.blocks {
				if block["promptId"] == "steer" {
					said++
				}
			}
		}
		require.Equal(t, 1, said, "the agent was given the prompt once")
	}
}
