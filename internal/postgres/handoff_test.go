package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// wakes gives a fork its first sandbox.
func (b *harness) wakes(t *testing.T) {
	t.Helper()
	b.transit(t, session.EventWake, "")
	b.reserve(t, 1)
	b.transit(t, session.EventReady, "")
}

// started returns the start of an agent for a prompt, and ends its run with an outcome.
func (b *harness) started(t *testing.T, text string, outcome session.Outcome) (promptID string, start run.Start) {
	t.Helper()
	promptID = b.submit(t, text)
	runID := b.begin(t, promptID)
	start, err := b.RunAttach(b.ctx, runID, "t1", run.Dispatch{No: 1, Attempt: 1}, nil)
	require.NoError(t, err)
	b.say(t, runID, text)
	_, err = b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: outcome})
	require.NoError(t, err)
	return promptID, start
}

func saidIn(h *fork.HandOff) (texts []string) {
	for _, s := range h.Items {
		texts = append(texts, s.Text)
	}
	return texts
}

// handsOver checks from which agent a session is handed over, and whether its agent has no memory.
func (b *harness) handsOver(t *testing.T, want string, wantDue bool) {
	t.Helper()
	from, due, err := b.HandOff(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, want, from)
	require.Equal(t, wantDue, due)
}

func TestForkWithAnotherAgentGetsConversation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.SessionPatch(b.ctx, b.id, session.Patch{Options: &session.Options{Model: "theirs", Permissions: "ask"}})
	require.NoError(t, err)
	original, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	one := b.snapshotted(t, "im-1")
	b.turn(t, "two", session.OutcomeCompleted)

	f := b.fork(t, fork.Fork{BundleID: one.ID, Agent: "codex"})
	s, err := f.SessionGet(f.ctx, f.id)
	require.NoError(t, err)
	require.Equal(t, "codex", s.Agent)
	require.Equal(t, fork.Point{BundleID: one.ID, PromptID: one.PromptID, HandedFrom: original.Agent}, s.Fork)
	require.Equal(t, session.Options{Permissions: "ask"}, s.Options, "a model is one of its agent")
	f.handsOver(t, original.Agent, true)

	// Until the agent has completed a turn it has nothing to resume, and gets the conversation with
	// each prompt.
	f.wakes(t)
	_, start := f.started(t, "failed", session.OutcomeFailed)
	require.False(t, start.Resume)
	require.Equal(t, f.id, start.MemoryID, "its memory has its own name")
	require.Equal(t, &fork.HandOff{From: original.Agent, Items: []fork.Item{{Kind: fork.ItemOfAgent, Text: "one"}}}, start.HandOff)
	_, start = f.started(t, "more", session.OutcomeCompleted)
	require.Equal(t, []string{"one", "failed"}, saidIn(start.HandOff))
	f.handsOver(t, original.Agent, false)
	_, start = f.started(t, "most", session.OutcomeCompleted)
	require.True(t, start.Resume)
	require.Nil(t, start.HandOff)
	require.Equal(t, []string{"one", "failed", "more", "most"}, f.spoken(t))

	// In a fork of the fork, the same agent remembers; another one does not.
	later := f.snapshotted(t, "im-2")
	g := f.fork(t, fork.Fork{BundleID: later.ID})
	g.handsOver(t, "", false)
	g.wakes(t)
	_, start = g.started(t, "again", session.OutcomeCompleted)
	require.True(t, start.Resume)
	require.Equal(t, f.id, start.MemoryID)
	require.Nil(t, start.HandOff)
	back := f.fork(t, fork.Fork{BundleID: later.ID, Agent: original.Agent})
	back.handsOver(t, "codex", true)

	// A fork of the fork from before its first turn has no memory either.
	head, err := g.BundleHead(g.ctx, g.id)
	require.NoError(t, err)
	base := f.base(t)
	h := f.fork(t, fork.Fork{BundleID: base})
	h.handsOver(t, original.Agent, true)
	g.fork(t, fork.Fork{BundleID: head.ID}).handsOver(t, "", false)
	h.wakes(t)
	_, start = h.started(t, "first", session.OutcomeCompleted)
	require.False(t, start.Resume)
	require.Equal(t, []string{"one"}, saidIn(start.HandOff))

	// The parent is not affected.
	b.handsOver(t, "", false)
	_, start = b.started(t, "three", session.OutcomeCompleted)
	require.Nil(t, start.HandOff)
	require.True(t, start.Resume)
}

// base returns the bundle that a fork began with.
func (b *harness) base(t *testing.T) string {
	t.Helper()
	items, _, err := b.BundleList(b.ctx, b.id, 100, "")
	require.NoError(t, err)
	return items[len(items)-1].ID
}

func TestForkWithAnotherAgentGetsConversationAfterRevert(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	f := b.fork(t, fork.Fork{BundleID: b.snapshotted(t, "im-1").ID, Agent: "codex"})
	f.wakes(t)
	prompt, _ := f.started(t, "more", session.OutcomeCompleted)
	runs, err := f.RunsFrom(f.ctx, f.id, prompt)
	require.NoError(t, err)
	require.NoError(t, f.SessionRevert(f.ctx, f.id, 1, runs, nil))
	_, start := f.started(t, "other", session.OutcomeCompleted)
	require.Equal(t, []string{"one"}, saidIn(start.HandOff))
	_, start = f.started(t, "last", session.OutcomeCompleted)
	require.Nil(t, start.HandOff)
}

func TestHandOffIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	for n := range 20 {
		b.turn(t, fmt.Sprintf("%d %s", n, strings.Repeat("ü", fork.MaxHandOffText)), session.OutcomeCompleted)
	}
	f := b.fork(t, fork.Fork{BundleID: b.snapshotted(t, "im-1").ID, Agent: "codex"})
	f.wakes(t)
	_, start := f.started(t, "more", session.OutcomeCompleted)
	require.True(t, start.HandOff.More)
	size := 0
	for _, text := range saidIn(start.HandOff) {
		require.LessOrEqual(t, len(text), fork.MaxHandOffText)
		require.True(t, strings.HasSuffix(text, "ü…"), "cut between characters")
		size += len(text)
	}
	require.LessOrEqual(t, size, fork.MaxHandOff)
	require.Greater(t, size, fork.MaxHandOff*3/4)
	require.True(t, strings.HasPrefix(saidIn(start.HandOff)[len(start.HandOff.Items)-1], "19 "), "the newest are kept")
}
