package test

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTurnSurvivesKillOfAnyPart kills each part of the system with SIGKILL in the middle of a
// turn. Every prompt reaches a final status, the stream has every event once and in order, and the
// session continues.
func TestTurnSurvivesKillOfAnyPart(t *testing.T) { //nolint:tparallel // one part after the other, all of one system
	t.Parallel()
	s := startWholeStack(t)
	for _, c := range []struct { //nolint:paralleltest // see above
		part  string
		words []string // in the command line of its process
		// permitted outcomes after this loss
		outcomes []string
		// code of the cause that explains the prompt afterwards; empty if the turn is not affected
		code string
	}{
		{"api", []string{"overwinter api"}, []string{"completed"}, ""},
		{"worker", []string{"overwinter worker"}, []string{"completed"}, "worker_lost"},
		{"Temporal", []string{"overwinter-temporal"}, []string{"completed"}, ""},
		{"Postgres", []string{"postgres", "-D"}, []string{"completed"}, ""},
		{"local Modal", []string{"overwinter local-modal"}, []string{"unknown"}, "sandbox_lost"},
	} {
		t.Run(c.part, func(t *testing.T) {
			turn := s.startTurn(t)
			pid := s.child(t, c.words...)
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			s.endTurn(t, turn, c.outcomes, c.code)
		})
	}
	t.Run("dev itself", func(t *testing.T) {
		turn := s.startTurn(t)
		s.kill(t)
		s.start(t)
		s.endTurn(t, turn, []string{"completed", "unknown"}, "")
	})
}

// runningTurn is a turn that takes a while, with its reader.
type runningTurn struct {
	session string
	stream  *follower
}

const slowWords = 60

// startTurn returns while the agent prints numbered words.
func (s *stack) startTurn(t *testing.T) runningTurn {
	t.Helper()
	words := make([]string, slowWords)
	for i := range words {
		words[i] = fmt.Sprintf("w%d", i)
	}
	id := s.create(t, object{})
	stream := s.follow(t, id)
	s.prompt(t, id, "first", "write kept.txt: from the first turn")
	require.Equal(t, "completed", s.waitPrompt(t, id, "first", 60*time.Second)["status"])
	s.prompt(t, id, "slow", "slow 50ms: "+strings.Join(words, " "))
	s.prompt(t, id, "next", "after the slow one")
	stream.wait(t, 60*time.Second, "the agent speaks", func(e event) bool {
		return e.Type == "text_delta" && strings.Contains(string(e.Data), "w5")
	})
	return runningTurn{session: id, stream: stream}
}

func (s *stack) endTurn(t *testing.T, turn runningTurn, outcomes []string, code string) {
	t.Helper()
	slow := s.waitPrompt(t, turn.session, "slow", 90*time.Second)
	require.Contains(t, outcomes, slow["status"], "%v", slow)
	s.explained(t, turn.session, "prompt", "slow", "prompt_"+slow["status"].(string))
	if code != "" {
		s.explained(t, turn.session, "prompt", "slow", code)
	}
	next := s.waitPrompt(t, turn.session, "next", 90*time.Second)
	require.Equal(t, "completed", next["status"], "%v", next)

	// A prompt sent with the same id again changes nothing.
	s.prompt(t, turn.session, "slow", "slow 50ms: "+wordsFrom(t, s, turn.session))
	s.prompt(t, turn.session, "after", "recall\n$ cat kept.txt")
	after := s.waitPrompt(t, turn.session, "after", 90*time.Second)
	require.Equal(t, "completed", after["status"], "%v", after)
	text := s.text(t, turn.session)
	require.Contains(t, text, "write kept.txt", "the agent remembers the first prompt")
	require.Contains(t, text, "from the first turn", "the files are there")

	turn.stream.wait(t, within, "the stream has the last turn", func(e event) bool {
		return e.Type == "turn_end" && strings.Contains(string(e.Data), `"promptId":"after"`)
	})
	events := turn.stream.all(t)
	ends := map[string]int{}
	for _, e := range events {
		if e.Type == "turn_end" {
			var d struct{ PromptID string }
			require.NoError(t, json.Unmarshal(e.Data, &d))
			ends[d.PromptID]++
		}
	}
	require.Equal(t, map[string]int{"first": 1, "slow": 1, "next": 1, "after": 1}, ends, "each prompt ran once")
	if slow["status"] == "completed" {
		got := strings.Fields(textOf(t, events, slow["runId"].(string)))
		require.Len(t, got, slowWords, "every word once")
		for i, w := range got {
			require.Equal(t, fmt.Sprintf("w%d", i), w)
		}
	}
	s.must(t, 202, "POST", "/api/sessions/"+turn.session+"/stop", nil)
	s.waitStatus(t, turn.session, "terminated", within)
}

// wordsFrom returns the words that the slow prompt prints.
func wordsFrom(t *testing.T, s *stack, sessionID string) string {
	t.Helper()
	got := s.must(t, 200, "GET", "/api/sessions/"+sessionID+"/prompts/slow", nil)
	return strings.TrimPrefix(got["content"].(string), "slow 50ms: ")
}
