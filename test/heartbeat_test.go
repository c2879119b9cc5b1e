package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTurnSurvivesTemporalStall freezes Temporal for ten seconds in the middle of a turn. The
// attempt keeps its run, and its words continue to arrive.
func TestTurnSurvivesTemporalStall(t *testing.T) {
	t.Parallel()
	s := startTemporalStack(t, nil)
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
	stream.wait(t, within, "the text of a turn does not wait for Temporal", func(e event) bool {
		return e.Type == "text_delta" && strings.Contains(string(e.Data), "w50")
	})
	<-frozen.C
	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))

	slow := s.waitPrompt(t, id, "slow", 90*time.Second)
	require.Equal(t, "completed", slow["status"], "%v", slow)
	stream.wait(t, within, "the stream has the end", func(e event) bool { return e.Type == "turn_end" })
	starts := 0
	for _, e := range stream.all(t) {
		if e.Type == "turn_start" {
			starts++
		}
	}
	require.Equal(t, 1, starts, "the first attempt completed the run")
	require.Equal(t, words, strings.Fields(textOf(t, stream.all(t), slow["runId"].(string))))
}

// TestTurnOfKilledWorkerIsTakenOver kills the worker in the middle of silent turns, so that only
// the missing heartbeats reveal the loss. Another attempt takes over each turn within 20 s.
func TestTurnOfKilledWorkerIsTakenOver(t *testing.T) {
	t.Parallel()
	const turns, promise, slack = 5, 20 * time.Second, 10 * time.Second
	release := make(chan struct{})
	silence := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(silence.Close)
	s := startStack(t)
	idle := s.create(t, object{"prompt": object{"id": "first", "content": "hello"}})
	require.Equal(t, "completed", s.waitPrompt(t, idle, "first", within)["status"])
	var ids []string
	var streams []*follower
	for range turns {
		id := s.create(t, object{})
		stream := s.follow(t, id)
		s.prompt(t, id, "silent", "$ curl -sS --max-time 300 "+insideURL(silence.URL))
		stream.wait(t, 60*time.Second, "the tool runs", func(e event) bool { return e.Type == "block_start" })
		ids, streams = append(ids, id), append(streams, stream)
	}
	killed := time.Now()
	s.killChild(t, "overwinter worker")
	// The time of the next worker to start and to serve a prompt shows how busy the machine is with
	// other tests.
	s.prompt(t, idle, "second", "hello again")
	require.Equal(t, "completed", s.waitPrompt(t, idle, "second", within)["status"])
	busy := time.Since(killed)
	var took []time.Duration
	for _, stream := range streams {
		start := stream.wait(t, within, "a second attempt has the run", func(e event) bool {
			return e.Type == "turn_start" && strings.Contains(string(e.Data), `"attempt":2`)
		})
		took = append(took, start.at.Sub(killed))
	}
	slices.Sort(took)
	t.Logf("taken over after %s, another prompt processed after %s", took, busy)
	require.LessOrEqual(t, took[turns/2], promise+busy, "most turns are taken over in time: %s", took)
	require.LessOrEqual(t, took[turns-1], promise+slack+busy, "all turns: %s", took)
	close(release)
	for _, id := range ids {
		require.Equal(t, "completed", s.waitPrompt(t, id, "silent", 90*time.Second)["status"])
	}
}
