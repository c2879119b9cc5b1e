package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSessionIsReverted reverts a hibernated session to its state before the second prompt: the
// agent remembers only the first, later blocks are removed, transcript and stream agree, and the
// stored transcripts are enough to wake in a fresh sandbox.
func TestSessionIsReverted(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	id := s.create(t, object{"prompt": object{"id": "first", "content": "the first thing said"}})
	stream := s.follow(t, id)
	require.Equal(t, "completed", s.waitPrompt(t, id, "first", 60*time.Second)["status"])
	s.prompt(t, id, "second", "the second thing said\nwrite kept.txt: files stay")
	s.prompt(t, id, "third", "subagent helper: the third thing said")
	require.Equal(t, "completed", s.waitPrompt(t, id, "third", 60*time.Second)["status"])
	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/hibernate", nil)
	s.waitStatus(t, id, "hibernated", within)

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
	s.waitStatus(t, id, "hibernated", within)
	s.prompt(t, id, "fresh", "recall")
	require.Equal(t, "completed", s.waitPrompt(t, id, "fresh", 60*time.Second)["status"])
	require.Contains(t, s.text(t, id), "I have had 3 prompts")

	files := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id+"/transcript", nil)
	require.NotContains(t, fmt.Sprint(files), "the second thing said", "it is no longer stored")
	stream.all(t)
}

// TestSessionIsRevertedToBundle reverts a running session with its files, twice: to its state
// before the third prompt, and to the bundle after its first. A waiting prompt runs afterwards, the
// undone state can be forked, and a bundle whose snapshot is lost changes nothing.
func TestSessionIsRevertedToBundle(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	id := s.create(t, object{"options": object{"checkpoint": "turn"}})
	stream := s.follow(t, id)
	said := []string{"", "the first thing said", "the second thing said", "the third thing said"}
	for n := 1; n <= 3; n++ {
		s.prompt(t, id, fmt.Sprint("p", n), fmt.Sprintf("%s\n$ echo line %d >> lines.txt", said[n], n))
	}
	require.Equal(t, "completed", s.waitPrompt(t, id, "p3", time.Minute)["status"])
	var first string
	eventually(t, time.Minute, "each turn has its bundle", func() error {
		page := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id+"/bundles", nil)["items"].([]any)
		for _, item := range page {
			if item.(object)["message_history_state"].(object)["promptId"] == "p1" {
				first = item.(object)["id"].(string)
			}
		}
		if len(page) < 3 || first == "" {
			return fmt.Errorf("%v", page)
		}
		return nil
	})

	s.must(t, http.StatusBadRequest, "POST", "/api/sessions/"+id+"/revert", object{"promptId": "p3", "bundleId": first})
	got := s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/revert", object{"promptId": "p3", "files": true})
	pending := got["pendingCommands"].([]any) // the checkpoint of the turn may be pending too
	require.True(t, slices.ContainsFunc(pending, func(c any) bool {
		return c.(object)["kind"] == "revert" && c.(object)["files"] == true
	}), "%v", pending)
	s.prompt(t, id, "after", "recall\n$ cat lines.txt; echo that was all of it")
	require.Equal(t, "completed", s.waitPrompt(t, id, "after", time.Minute)["status"])
	text := s.text(t, id)
	require.Contains(t, text, "I have had 3 prompts")
	require.Contains(t, text, "line 1\nline 2\nthat was all of it")
	require.Contains(t, text, said[2])
	require.NotContains(t, text, said[3])
	require.Equal(t, "reverted", s.waitPrompt(t, id, "p3", time.Second)["reason"])
	states := []string{}
	for _, e := range stream.seen(t) {
		if e.Type == "status" {
			var data struct{ Status string }
			require.NoError(t, json.Unmarshal(e.Data, &data))
			states = append(states, data.Status)
		}
	}
	require.Equal(t, []string{"running", "hibernating", "hibernated", "restoring", "running"}, states)

	// The undone state can be forked; its prompts no longer select a bundle for a revert.
	forked := s.must(t, http.StatusCreated, "POST", "/api/sessions/"+id+"/fork", object{
		"promptId": "p3", "prompt": object{"id": "q", "content": "recall\n$ cat lines.txt"},
	})["id"].(string)
	require.Equal(t, "completed", s.waitPrompt(t, forked, "q", time.Minute)["status"])
	require.Contains(t, s.text(t, forked), "line 1\nline 2\nline 3")
	require.Contains(t, s.text(t, forked), "I have had 4 prompts")
	s.must(t, http.StatusConflict, "POST", "/api/sessions/"+id+"/revert", object{"promptId": "p3", "files": true})

	// A sleeping session wakes for the revert.
	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/hibernate", nil)
	s.waitStatus(t, id, "hibernated", time.Minute)
	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/revert", object{"bundleId": first})
	s.waitStatus(t, id, "running", time.Minute)
	s.prompt(t, id, "again", "recall\n$ cat lines.txt; echo that was all of it")
	require.Equal(t, "completed", s.waitPrompt(t, id, "again", time.Minute)["status"])
	text = s.text(t, id)
	require.Contains(t, text, "I have had 2 prompts")
	require.Contains(t, text, "line 1\nthat was all of it")
	require.NotContains(t, text, said[2])

	// If the bundle's snapshot is lost at the provider, nothing changes.
	head := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)["head"].(string)
	s.prompt(t, id, "last", "the last thing said\n$ echo last >> lines.txt")
	require.Equal(t, "completed", s.waitPrompt(t, id, "last", time.Minute)["status"])
	s.loseSnapshotsOf(t, "id = $1", head)
	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/revert", object{"bundleId": head})
	stream.wait(t, time.Minute, "the revert is refused", func(e event) bool {
		return e.Type == "error" && strings.Contains(string(e.Data), "revert_failed")
	})
	s.prompt(t, id, "still", "recall\n$ cat lines.txt")
	require.Equal(t, "completed", s.waitPrompt(t, id, "still", time.Minute)["status"])
	text = s.text(t, id)
	require.Contains(t, text, "the last thing said")
	require.Contains(t, text, "line 1\nlast")
	require.Contains(t, text, "I have had 4 prompts")
	stream.all(t)
}
