package test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asleep waits until a session sleeps with its question open.
func (s *stack) asleep(t *testing.T, sessionID string) {
	t.Helper()
	slept := s.waitStatus(t, sessionID, "hibernated", 60*time.Second)
	require.Equal(t, "question", slept["statusReason"])
	require.Nil(t, slept["runtime"].(object)["sandbox"])
	require.Equal(t, "waiting_for_answer", slept["doing"].(object)["state"])
	require.EqualValues(t, 1, slept["questions"].(object)["open"])
	require.EqualValues(t, 1, slept["queue"].(object)["processing"])
}

// TestQuestionsSurviveTheirSandboxes hibernates a session with an open question until it is
// answered. The answer is delivered once, whichever worker runs, and the agent continues. A
// question without an answer expires and is rejected.
func TestQuestionsSurviveTheirSandboxes(t *testing.T) {
	t.Parallel()
	s := startStackEnv(t, []string{"OVERWINTER_PARK_AFTER=2s"})
	id := s.create(t, object{
		"options": object{"permissions": "ask"},
		"prompt":  object{"id": "asks", "content": "$ echo permitted"},
	})
	stream := s.follow(t, id)
	question := s.asked(t, id)
	expires, err := time.Parse(time.RFC3339, question["expiresAt"].(string))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(72*time.Hour), expires, time.Minute)
	s.asleep(t, id)
	require.Empty(t, s.sandboxTree(), "it costs nothing")
	s.explained(t, id, "", "", "turn_parked")
	s.explained(t, id, "prompt", "asks", "question_open")
	s.explained(t, id, "question", "", "question_open")
	s.prompt(t, id, "waits", "recall")

	s.killChild(t, "overwinter", "worker")
	s.answer(t, id, question, object{"answer": "once"})
	require.Equal(t, "completed", s.waitPrompt(t, id, "asks", 90*time.Second)["status"])
	require.Equal(t, "completed", s.waitPrompt(t, id, "waits", 60*time.Second)["status"])
	text := s.text(t, id)
	require.Contains(t, text, "It was allowed. Make the call again.")
	require.Equal(t, 1, strings.Count(text, "permission to use shell"), "the answer is given once: %s", text)
	var runs []string
	for _, e := range stream.all(t) {
		if e.Type == "turn_end" {
			runs = append(runs, e.RunID)
		}
	}
	require.Len(t, runs, 2, "one for each prompt")

	// A subagent that waits for the answer does not count as work either.
	s.prompt(t, id, "delegates", "subagent bob: $ echo delegated")
	s.asleep(t, id)
	s.answer(t, id, s.asked(t, id), object{"answer": "once"})
	require.Equal(t, "completed", s.waitPrompt(t, id, "delegates", 90*time.Second)["status"])
	require.Contains(t, s.text(t, id), "running calls and subagents were stopped")

	s.must(t, http.StatusOK, "PATCH", "/api/sessions/"+id, object{"options": object{"permissions": "ask", "questionTimeout": "12s"}})
	s.prompt(t, id, "expires", "$ echo never")
	s.asleep(t, id)
	require.Equal(t, "completed", s.waitPrompt(t, id, "expires", 60*time.Second)["status"])
	require.Contains(t, s.text(t, id), "No answer came in time.")
	s.explained(t, id, "question", "", "question_expired")
	require.Equal(t, "question_expired", s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)["statusReason"])

	s.must(t, http.StatusOK, "PATCH", "/api/sessions/"+id, object{"options": object{"permissions": "ask"}})
	s.prompt(t, id, "aborted", "$ echo never")
	s.asleep(t, id)
	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/abort", nil)
	require.Equal(t, "cancelled", s.waitPrompt(t, id, "aborted", within)["status"])
	s.explained(t, id, "prompt", "aborted", "aborted")
	s.explained(t, id, "prompt", "aborted", "command_requested")
	require.Equal(t, "hibernated", s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)["status"], "without a sandbox")
	stream.all(t)
}
