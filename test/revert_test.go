package test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestASessionIsReverted reverts a hibernated session to before its second prompt: the agent knows
// the first alone, later blocks are gone from what is read, file and stream agree, and what is
// stored is enough to wake in a fresh sandbox.
func TestASessionIsReverted(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	id := s.create(t, object{"prompt": object{"id": "first", "content": "the first thing said"}})
	stream := s.follow(t, id)
	require.Equal(t, "completed", s.waitPrompt(t, id, "first", 60*time.Second)["status"])
	s.prompt(t, id, "second", "the second thing said\nwrite kept.txt: files stay")
	s.prompt(t, id, "third", "subagent helper: the third thing said")
	require.Equal(t, "completed", s.waitPrompt(t, id, "third", 60*time.Second)["status"])
	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/hibernate", nil)
	s.waitStatus(t, id, "hibernated", 30*time.Second)

	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/revert", object{"promptId": "second"})
	stream.wait(t, 60*time.Second, "blocks are removed", func(e event) bool { return e.Type == "block_removed" })
	text := s.text(t, id)
	require.Contains(t, text, "the first thing said")
	require.NotContains(t, text, "the second thing said")
	require.NotContains(t, text, "the third thing said")
	reverted := s.waitPrompt(t, id, "second", time.Second)
	require.Equal(t, "completed", reverted["status"])
	require.Equal(t, "reverted", reverted["reason"])
	s.must(t, http.StatusConflict, "POST", "/api/sessions/"+id+"/revert", object{"promptId": "third"})

	s.prompt(t, id, "after", "recall\n$ cat kept.txt")
	require.Equal(t, "completed", s.waitPrompt(t, id, "after", 60*time.Second)["status"])
	require.Contains(t, s.text(t, id), "I have had 2 prompts")
	require.Contains(t, s.text(t, id), "files stay")

	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/environment/terminate", nil)
	s.waitStatus(t, id, "hibernated", 30*time.Second)
	s.prompt(t, id, "fresh", "recall")
	require.Equal(t, "completed", s.waitPrompt(t, id, "fresh", 60*time.Second)["status"])
	require.Contains(t, s.text(t, id), "I have had 3 prompts")

	files := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id+"/transcript", nil)
	require.NotContains(t, fmt.Sprint(files), "the second thing said", "it is not stored any more")
	stream.all(t)
}
