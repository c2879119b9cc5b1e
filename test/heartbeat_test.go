package test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestATurnOutlivesAStallOfTemporal freezes Temporal for ten seconds in the middle of a turn. The
// attempt keeps its run, and its words keep coming meanwhile.
func TestATurnOutlivesAStallOfTemporal(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	words := make([]string, 320)
	for i := range words {
		words[i] = fmt.Sprintf("w%d", i)
	}
	id := s.create(t, object{})
	stream := s.follow(t, id)
	s.prompt(t, id, "slow", "slow 50ms: "+strings.Join(words, " "))
	stream.wait(t, 60*time.Second, "the agent speaks", func(e event) bool {
		return e.Type == "text_delta" && strings.Contains(string(e.Data), "w5")
	})
	pid := s.child(t, "overwinter-temporal")
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	frozen := time.NewTimer(10 * time.Second)
	stream.wait(t, 9*time.Second, "the words of a turn do not wait for Temporal", func(e event) bool {
		return e.Type == "text_delta" && strings.Contains(string(e.Data), "w50")
	})
	<-frozen.C
	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))

	slow := s.waitPrompt(t, id, "slow", 90*time.Second)
	require.Equal(t, "completed", slow["status"], "%v", slow)
	stream.wait(t, 20*time.Second, "the stream has the end", func(e event) bool { return e.Type == "turn_end" })
	starts := 0
	for _, e := range stream.all(t) {
		if e.Type == "turn_start" {
			starts++
		}
	}
	require.Equal(t, 1, starts, "the first attempt carried the run to its end")
	require.Equal(t, words, strings.Fields(said(t, stream.all(t), slow["runId"].(string))))
}

// TestAKilledWorkersTurnIsTakenOver kills the worker in the middle of a turn that is silent: nothing
// but the missing heartbeats says that it is gone.
func TestAKilledWorkersTurnIsTakenOver(t *testing.T) {
	t.Parallel()
	s := startStack(t)
	id := s.create(t, object{})
	stream := s.follow(t, id)
	s.prompt(t, id, "long", "$ sleep 40; echo done")
	stream.wait(t, 60*time.Second, "the tool runs", func(e event) bool { return e.Type == "block_start" })
	killed := time.Now()
	require.NoError(t, syscall.Kill(s.child(t, "overwinter worker"), syscall.SIGKILL))
	stream.wait(t, 60*time.Second, "a second attempt has the run", func(e event) bool {
		return e.Type == "turn_start" && strings.Contains(string(e.Data), `"attempt":2`)
	})
	t.Logf("taken over after %s; the promise is 20s on a free machine", time.Since(killed))
	require.Equal(t, "completed", s.waitPrompt(t, id, "long", 90*time.Second)["status"])
}
