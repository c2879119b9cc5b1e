package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSessionHibernatesAndWakes tests the main purpose of the system from outside: a session runs
// an agent, hibernates when idle so that nothing of its sandbox is left, and wakes on the next
// prompt with its files and its memory.
func TestSessionHibernatesAndWakes(t *testing.T) {
	t.Parallel()
	s := startWholeStack(t)
	eventually(t, within, "readiness names the isolation level", func() error {
		_, got, err := s.call("GET", "/readyz", nil)
		if err != nil {
			return err
		}
		if sandbox := got["checks"].(object)["sandbox"].(object); sandbox["isolation"] != "namespaces" || sandbox["driver"] != "modal" {
			return fmt.Errorf("%v", sandbox)
		}
		return nil
	})

	id := s.create(t, object{
		"idleTimeout": "2s",
		"prompt":      object{"id": "first", "content": "write hello.txt: made before the sleep\n$ (setsid sleep 600 &) ; echo started"},
	})
	stream := s.follow(t, id)
	first := s.waitPrompt(t, id, "first", 60*time.Second)
	require.Equal(t, "completed", first["status"], "%v", first)
	require.Contains(t, s.text(t, id), "started")
	require.NotEmpty(t, s.sandboxTree(), "a running session has processes in its sandbox")

	slept := s.waitStatus(t, id, "hibernated", within)
	require.Equal(t, "idle", slept["statusReason"])
	require.Nil(t, slept["runtime"].(object)["sandbox"])
	require.Empty(t, s.sandboxTree(), "a hibernated session has none")

	// Reading never wakes the session.
	require.Contains(t, s.text(t, id), "started")
	s.must(t, http.StatusOK, "GET", "/api/sessions/"+id+"/transcript", nil)
	require.Equal(t, "hibernated", s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)["status"])

	s.prompt(t, id, "second", "recall\n$ cat hello.txt")
	second := s.waitPrompt(t, id, "second", 60*time.Second)
	require.Equal(t, "completed", second["status"], "%v", second)
	text := s.text(t, id)
	require.Contains(t, text, "2 prompts")
	require.Contains(t, text, "write hello.txt")
	require.Contains(t, text, "made before the sleep")
	woken := s.waitStatus(t, id, "running", 10*time.Second)
	require.Equal(t, "full", woken["receipt"].(object)["kind"])
	require.EqualValues(t, 2, woken["generation"])

	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/stop", nil)
	s.waitStatus(t, id, "terminated", within)
	eventually(t, within, "the stream ends", func() error {
		if !stream.finished() {
			return fmt.Errorf("after %d events", stream.last())
		}
		return nil
	})
	events := stream.all(t)
	require.True(t, stream.ended)
	require.Equal(t, []string{"running", "hibernating", "hibernated", "restoring", "running", "terminated"}, statuses(t, events))
	require.Equal(t, "status", events[len(events)-1].Type)
	require.Empty(t, s.sandboxTree())
}

// TestSessionHibernatesAtAnnouncedTime checks that a session hibernates at the time that it shows and
// announces, which a prompt and a new idle timeout move.
func TestSessionHibernatesAtAnnouncedTime(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	id := s.create(t, object{"idleTimeout": "1h", "prompt": object{"id": "first", "content": "hello"}})
	stream := s.follow(t, id)
	require.Equal(t, "completed", s.waitPrompt(t, id, "first", 60*time.Second)["status"])
	sleepsAt := func(got object) time.Time {
		t.Helper()
		at, err := time.Parse(time.RFC3339Nano, got["sleepsAt"].(string))
		require.NoError(t, err)
		return at
	}
	got := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)
	first := sleepsAt(got)
	require.WithinDuration(t, time.Now().Add(time.Hour), first, time.Minute)
	require.NotNil(t, got["expiresAt"])
	require.Nil(t, got["nextCheckpointAt"])

	s.prompt(t, id, "second", "hello again")
	require.Equal(t, "completed", s.waitPrompt(t, id, "second", 60*time.Second)["status"])
	require.True(t, sleepsAt(s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)).After(first), "a prompt moves it")

	last := sleepsAt(s.must(t, http.StatusOK, "PATCH", "/api/sessions/"+id, object{"idleTimeout": "16s"}))
	announced := stream.wait(t, within, "the hibernation is announced", func(e event) bool { return e.Type == "deadline" })
	require.JSONEq(t, fmt.Sprintf(`{"kind":"sleep","at":%q}`, last.Format("2006-01-02T15:04:05.000Z")), string(announced.Data))
	left := stream.wait(t, within, "the session hibernates", func(e event) bool {
		return e.Type == "status" && strings.Contains(string(e.Data), `"hibernating"`)
	})
	require.False(t, left.At.Before(last), "%s early", last.Sub(left.At))
	require.Less(t, left.At.Sub(last), time.Minute, "a busy machine is late")
	require.Nil(t, s.waitStatus(t, id, "hibernated", within)["sleepsAt"])
	stream.all(t)
}

// TestCommandsOfSession tests the commands of a session, in one system.
func TestCommandsOfSession(t *testing.T) {
	t.Parallel()
	s := startStack(t)

	t.Run("a lazy session has no sandbox before its first prompt", func(t *testing.T) {
		t.Parallel()
		id := s.create(t, object{})
		for _, path := range []string{"", "/blocks", "/prompts", "/transcript"} {
			s.must(t, http.StatusOK, "GET", "/api/sessions/"+id+path, nil)
		}
		eventually(t, within, "the workflow answers", func() error {
			code, got, err := s.call("GET", "/api/sessions/"+id+"/state", nil)
			if err != nil || code != http.StatusOK || got["status"] != "initializing" {
				return fmt.Errorf("%d %v %w", code, got, err)
			}
			return nil
		})
		got := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)
		require.Equal(t, "initializing", got["status"])
		require.EqualValues(t, 0, got["generation"])
		s.prompt(t, id, "p", "hello there")
		require.Equal(t, "completed", s.waitPrompt(t, id, "p", 60*time.Second)["status"])
		require.Contains(t, s.text(t, id), "hello there")
	})

	t.Run("abort interrupts the turn and the session continues", func(t *testing.T) {
		t.Parallel()
		id := s.create(t, object{"prompt": object{"id": "long", "content": "before\nsleep 10m\nafter"}})
		stream := s.follow(t, id)
		stream.wait(t, 60*time.Second, "the tool runs", func(e event) bool {
			return e.Type == "block_update" || e.Type == "block_start" && json.Valid(e.Data) && blockName(e) == "sleep"
		})
		s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/abort", nil)
		long := s.waitPrompt(t, id, "long", within)
		require.Equal(t, "cancelled", long["status"], "%v", long)
		require.NotContains(t, s.text(t, id), "after")
		s.prompt(t, id, "next", "still here")
		require.Equal(t, "completed", s.waitPrompt(t, id, "next", within)["status"])
	})

	t.Run("prompts that arrive while it goes to sleep are served after the wake, in order", func(t *testing.T) {
		t.Parallel()
		id := s.create(t, object{"prompt": object{"id": "p0", "content": "one"}})
		s.waitPrompt(t, id, "p0", 60*time.Second)
		s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/hibernate", nil)
		for i := 1; i <= 5; i++ {
			s.prompt(t, id, fmt.Sprintf("p%d", i), fmt.Sprintf("$ echo %d >> order", i))
		}
		s.prompt(t, id, "p6", "$ cat order")
		require.Equal(t, "completed", s.waitPrompt(t, id, "p6", 60*time.Second)["status"])
		require.Contains(t, s.text(t, id), "1\n2\n3\n4\n5")
	})

	t.Run("stop ends a turn and the waiting prompts", func(t *testing.T) {
		t.Parallel()
		id := s.create(t, object{"prompt": object{"id": "long", "content": "sleep 10m"}})
		s.prompt(t, id, "next", "never")
		s.waitStatus(t, id, "running", 60*time.Second)
		s.must(t, http.StatusAccepted, "DELETE", "/api/sessions/"+id, nil)
		s.waitStatus(t, id, "terminated", within)
		for _, p := range []string{"long", "next"} {
			got := s.waitPrompt(t, id, p, time.Second)
			require.Equal(t, "cancelled", got["status"], "%v", got)
			require.Equal(t, "session_terminated", got["reason"], "%v", got)
		}
		code, got, err := s.call("POST", "/api/sessions/"+id+"/prompts", object{"content": "late"})
		require.NoError(t, err)
		require.Equal(t, http.StatusConflict, code)
		require.Equal(t, "session_terminated", got["code"])
	})

	t.Run("an agent that crashes is reported with its exit code and started again", func(t *testing.T) {
		t.Parallel()
		id := s.create(t, object{"prompt": object{"id": "boom", "content": "before\ncrash"}})
		boom := s.waitPrompt(t, id, "boom", 60*time.Second)
		require.Equal(t, "failed", boom["status"], "%v", boom)
		s.prompt(t, id, "again", "recall")
		require.Equal(t, "completed", s.waitPrompt(t, id, "again", within)["status"])
		require.Contains(t, s.text(t, id), "2 prompts")
	})
}

func statuses(t *testing.T, events []event) []string {
	t.Helper()
	var out []string
	for _, e := range events {
		if e.Type == "status" {
			var d struct{ Status string }
			require.NoError(t, json.Unmarshal(e.Data, &d))
			out = append(out, d.Status)
		}
	}
	return out
}

func blockName(e event) string {
	var d struct{ Block struct{ Name string } }
	if json.Unmarshal(e.Data, &d) != nil {
		return ""
	}
	return d.Block.Name
}
