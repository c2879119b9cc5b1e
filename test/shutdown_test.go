package test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestShutdownHibernatesSessions checks that Ctrl-C waits for turns that end soon, interrupts the
// others, and saves every session.
func TestShutdownHibernatesSessions(t *testing.T) {
	t.Parallel()
	s := startWholeStack(t, "--drain-timeout", "3s")
	begin := func(name string, prompt object) (id string, stream *follower) {
		id = s.create(t, object{"title": name, "prompt": object{"id": "before", "content": "write kept.txt: of " + name}})
		require.Equal(t, "completed", s.waitPrompt(t, id, "before", time.Minute)["status"])
		if prompt != nil {
			s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/prompts", prompt)
		}
		return id, s.follow(t, id)
	}
	idle, _ := begin("idle", nil)
	brief, _ := begin("brief", object{"id": "p", "content": "slow 100ms: a turn that takes a second and ends by itself"})
	long := "slow 50ms: begun " + strings.Repeat("word ", 2000)
	cut, stream := begin("cut", object{"id": "p", "content": long})
	s.prompt(t, cut, "next", "recall")
	again, _ := begin("again", object{"id": "p", "onUnknown": "retry", "content": "slow 50ms: begun " + strings.Repeat("word ", 300)})
	for _, id := range []string{cut, again} {
		eventually(t, within, "the agent speaks", func() error {
			if text := s.text(t, id); !strings.Contains(text, "begun word") {
				return fmt.Errorf("%s", text)
			}
			return nil
		})
	}

	s.stop(t)
	stream.wait(t, time.Second, "the end of the turn, before the api stopped", func(e event) bool {
		return e.Type == "turn_end" && strings.Contains(string(e.Data), `"reason":"shutdown"`)
	})
	require.Empty(t, s.sandboxTree())
	s.start(t)

	require.Equal(t, "completed", s.waitPrompt(t, brief, "p", time.Second)["status"], "there was time to save")
	for _, id := range []string{idle, brief} {
		shown := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)
		require.Equal(t, "hibernated", shown["status"], "%v", shown)
		require.Equal(t, "shutdown", shown["statusReason"])
		s.explained(t, id, "", "", "shutdown")
	}
	p := s.waitPrompt(t, cut, "p", time.Second)
	require.Equal(t, "cancelled", p["status"], "%v", p)
	require.Equal(t, "shutdown", p["reason"])
	s.explained(t, cut, "prompt", "p", "shutdown")
	require.Contains(t, s.text(t, cut), "begun word", "the text before the interruption")
	require.Equal(t, "completed", s.waitPrompt(t, cut, "next", time.Minute)["status"], "a prompt that waited runs after the stop")
	require.Contains(t, s.text(t, cut), "write kept.txt", "with the memory from before")
	require.Equal(t, "completed", s.waitPrompt(t, again, "p", within)["status"], "its policy is to run again")
	s.prompt(t, idle, "after", "recall\n$ cat kept.txt")
	require.Equal(t, "completed", s.waitPrompt(t, idle, "after", time.Minute)["status"])
	require.Contains(t, s.text(t, idle), "of idle")
	for _, id := range []string{idle, cut, again} {
		require.Equal(t, "full", s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)["receipt"].(object)["kind"])
	}
}

// TestSecondSignalStopsImmediately checks that a second signal does not wait for turns.
func TestSecondSignalStopsImmediately(t *testing.T) {
	t.Parallel()
	s := startStack(t, "--drain-timeout", "1h")
	id := s.create(t, object{"prompt": object{"id": "p", "content": "slow 100ms: begun " + strings.Repeat("word ", 3000)}})
	eventually(t, time.Minute, "the agent speaks", func() error {
		if text := s.text(t, id); !strings.Contains(text, "begun") {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	require.NoError(t, s.cmd.Process.Signal(os.Interrupt))
	eventually(t, within, "it waits for the turn", func() error {
		if out := s.out.String(); !strings.Contains(out, "Stopping.") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	require.NoError(t, s.cmd.Process.Signal(os.Interrupt))
	require.Error(t, s.cmd.Wait())
	s.stopped = true
	require.Contains(t, s.out.String(), "killed before everything had stopped")
}
