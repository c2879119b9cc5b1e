package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSessionSurvivesEnvironmentTermination saves a checkpoint, moves to another sandbox and discards one:
// each has the conversation, and the files are as promised.
func TestSessionSurvivesEnvironmentTermination(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	id := s.create(t, object{
		"workspace": object{"setup": "echo as at creation > given.txt"},
		"prompt":    object{"id": "first", "content": "write made.txt: made by the agent"},
	})
	stream := s.follow(t, id)
	require.Equal(t, "completed", s.waitPrompt(t, id, "first", 60*time.Second)["status"])

	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/sync", nil)
	s.prompt(t, id, "synced", "$ cat made.txt")
	require.Equal(t, "completed", s.waitPrompt(t, id, "synced", 60*time.Second)["status"])
	got := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)
	require.EqualValues(t, 1, got["generation"], "a checkpoint leaves the sandbox")

	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/environment/restart", nil)
	moved := stream.status(t, "running", 2)
	require.Equal(t, "full", moved["receipt"].(object)["kind"])
	s.prompt(t, id, "moved", "$ cat made.txt given.txt\nrecall")
	require.Equal(t, "completed", s.waitPrompt(t, id, "moved", 60*time.Second)["status"])

	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/environment/terminate", nil)
	slept := s.waitStatus(t, id, "hibernated", within)
	require.Equal(t, "dropped", slept["statusReason"])
	s.must(t, http.StatusOK, "POST", "/api/sessions/"+id+"/environment/terminate", nil)
	s.must(t, http.StatusConflict, "POST", "/api/sessions/"+id+"/environment/restart", nil)
	s.prompt(t, id, "fresh", "$ ls made.txt; cat given.txt\nrecall")
	fresh := s.waitPrompt(t, id, "fresh", 60*time.Second)
	require.Equal(t, "completed", fresh["status"])
	woken := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)
	require.Contains(t, []string{"partial", "fresh"}, woken["receipt"].(object)["kind"])
	text := s.text(t, id)
	require.Contains(t, text, "cannot access", "its files were discarded")
	require.Contains(t, text, "as at creation", "the workspace is set up again")
	require.Contains(t, text, "4 prompts", "the conversation is remembered")
	stream.all(t)
}

// status waits for the n-th time that the session takes a status, and returns the event's data.
func (f *follower) status(t *testing.T, status string, n int) (found object) {
	t.Helper()
	eventually(t, 60*time.Second, fmt.Sprintf("status %s, time %d", status, n), func() error {
		seen := 0
		for _, e := range f.all(t) {
			var data object
			if e.Type == "status" && json.Unmarshal(e.Data, &data) == nil && data["status"] == status {
				if seen++; seen == n {
					found = data
					return nil
				}
			}
		}
		return fmt.Errorf("%d times", seen)
	})
	return found
}
