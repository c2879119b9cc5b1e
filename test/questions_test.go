package test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asked waits for the one open question of a session.
func (s *stack) asked(t *testing.T, sessionID string) object {
	t.Helper()
	var question object
	eventually(t, within, "the agent asks", func() error {
		status, page, err := s.call("GET", "/api/sessions/"+sessionID+"/questions?status=open", nil)
		if err != nil {
			return err
		}
		items, _ := page["items"].([]any)
		if status != http.StatusOK || len(items) != 1 {
			return fmt.Errorf("%d %v", status, page)
		}
		question = items[0].(object)
		return nil
	})
	return question
}

func (s *stack) answer(t *testing.T, sessionID string, question, body object) {
	t.Helper()
	path := fmt.Sprintf("/api/sessions/%s/questions/%s/answer", sessionID, question["id"])
	got := s.must(t, http.StatusOK, "POST", path, body)
	require.Equal(t, "answered", got["status"])
	_, refused, err := s.call("POST", path, body)
	require.NoError(t, err)
	require.Equal(t, "question_answered", refused["code"], "the second answer")
}

// claudeAsksPeople tests questions of the real program: a permission that is granted and
// one that is refused, a question in words that survives its worker, one without an answer, and a
// turn that is aborted while it waits.
func (s *stack) claudeAsksPeople(t *testing.T) {
	id := s.create(t, object{
		"agent": "claude-sdk", "options": object{"permissions": "ask", "questionTimeout": "2m"},
		"prompt": object{"id": "rejected", "content": "{{touch}} it"},
	})
	stream := s.follow(t, id)
	s.waitStatus(t, id, "running", 4*time.Minute) // the image is built once

	question := s.asked(t, id)
	require.Equal(t, "permission", question["kind"])
	require.Equal(t, "Bash", question["toolName"])
	s.answer(t, id, question, object{"answer": "reject", "message": "not before tea"})
	require.Equal(t, "completed", s.waitPrompt(t, id, "rejected", 60*time.Second)["status"])
	require.Contains(t, s.text(t, id), "not before tea")

	s.prompt(t, id, "permitted", "{{touch}} it now")
	s.answer(t, id, s.asked(t, id), object{"answer": "session"})
	require.Equal(t, "completed", s.waitPrompt(t, id, "permitted", 60*time.Second)["status"])
	s.prompt(t, id, "again", "{{touch}} it once more")
	require.Equal(t, "completed", s.waitPrompt(t, id, "again", 60*time.Second)["status"], "it is not asked again")

	// The question survives its worker, and is answered while no worker runs.
	s.prompt(t, id, "colour", "{{colour}} please")
	question = s.asked(t, id)
	require.Equal(t, "question", question["kind"])
	require.Equal(t, "Which colour?", question["title"])
	s.killChild(t, "overwinter", "worker")
	s.answer(t, id, question, object{"answers": object{"Which colour?": "Green"}})
	require.Equal(t, "completed", s.waitPrompt(t, id, "colour", 90*time.Second)["status"])
	require.Contains(t, s.text(t, id), "Green")

	s.must(t, http.StatusOK, "PATCH", "/api/sessions/"+id, object{"options": object{"permissions": "ask", "questionTimeout": "1s"}})
	s.prompt(t, id, "expired", "{{colour}} again")
	stream.wait(t, 60*time.Second, "the question expires", func(e event) bool {
		return e.Type == "question_resolved" && strings.Contains(string(e.Data), `"reason":"expired"`)
	})
	require.Equal(t, "completed", s.waitPrompt(t, id, "expired", 60*time.Second)["status"])

	s.must(t, http.StatusOK, "PATCH", "/api/sessions/"+id, object{"options": object{"permissions": "ask"}})
	s.prompt(t, id, "aborted", "{{colour}} a last time")
	question = s.asked(t, id)
	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/abort", nil)
	require.Equal(t, "cancelled", s.waitPrompt(t, id, "aborted", 60*time.Second)["status"])
	status, refused, err := s.call("POST", fmt.Sprintf("/api/sessions/%s/questions/%s/answer", id, question["id"]), object{"answer": "reject"})
	require.NoError(t, err)
	require.Equal(t, http.StatusConflict, status, "%v", refused)
	stream.all(t)
}
