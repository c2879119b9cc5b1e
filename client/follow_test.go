package client_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// A reader of new events has no position before its first event. Events that are written while it
// is disconnected must not be lost.
func TestFollowLatestLosesNoEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	b.store.Text(id, "before")
	var seqs []int64
	for e, err := range b.client.Follow(t.Context(), id, client.Latest) {
		require.NoError(t, err)
		if e.Type == client.MarkerCaughtUp {
			b.server.CloseClientConnections()
			b.store.Text(id, "while it is disconnected")
			b.store.Text(id, "twice")
			continue
		}
		if seqs = append(seqs, e.Seq); len(seqs) == 2 {
			break
		}
	}
	require.Equal(t, []int64{2, 3}, seqs)
}

func TestFollowBlocksSurvivesDisconnectsAndGaps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	block := func(name, content string, status conversation.BlockStatus) conversation.Block {
		return conversation.Block{ID: name, Type: conversation.AssistantText, Status: status, Content: content}
	}
	write := func(kind conversation.EventType, data any) {
		b.store.With(id, func(r *apitest.Row) { b.store.Append(r, string(kind), data) })
	}
	write(conversation.EventBlockComplete, conversation.BlockComplete{Block: block("one", "1", conversation.Complete)})
	write(conversation.EventBlockStart, conversation.BlockStart{Block: block("two", "a", conversation.Streaming)})
	var got []string
	for change, err := range b.client.FollowBlocks(t.Context(), id) {
		require.NoError(t, err)
		got = append(got, fmt.Sprint(change.Block.ID, " ", change.Block.Content, " ", change.Removed, " ", change.Seq))
		switch len(got) {
		case 2:
			b.server.CloseClientConnections()
			write(conversation.EventTextDelta, conversation.TextDelta{BlockID: "two", Delta: "b"})
			write(conversation.EventTextDelta, conversation.TextDelta{BlockID: "unknown", Delta: "b"})
			write(conversation.EventTextDelta, conversation.TextDelta{BlockID: "two", Delta: "c"})
		case 4:
			write(conversation.EventBlockRemoved, conversation.BlockRemoved{BlockID: "one"})
			b.store.Status(id, session.Terminated)
		}
	}
	require.Equal(t, []string{"one 1 false 2", "two a false 2", "two ab false 3", "two abc false 5", "one  true 6"}, got)
}

func TestPromptWaitSurvivesDisconnects(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	submitted, err := b.client.PromptSubmit(t.Context(), id, client.Submit{Content: "hi", ID: "p1"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.client.PromptWait(ctx, id, "p1")
	require.ErrorIs(t, err, context.Canceled)
	done := make(chan client.Prompt, 1)
	waiting, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	go func() {
		defer close(done)
		if p, err := b.client.PromptWait(waiting, id, "p1"); err == nil {
			done <- p
		}
	}()
	require.Equal(t, client.PromptQueued, submitted.Prompt.Status)
	b.store.Turn(id, "p1", session.PromptCompleted, "", "hello")
	require.Equal(t, client.PromptCompleted, (<-done).Status)
	again, err := b.client.PromptWait(t.Context(), id, "p1")
	require.NoError(t, err)
	require.Equal(t, "hi", again.Content)
	_, err = b.client.PromptWait(t.Context(), id, "none")
	require.ErrorContains(t, err, string(client.CodePromptNotFound))
}

func TestLifecycleEventsAreFollowed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	happen := func(position int64, agent string, kind lifecycle.Type) {
		b.store.Happened(lifecycle.Event{Position: position, Type: kind, Session: lifecycle.Subject{ID: session.NewID("ses_"), Agent: agent, Status: session.Running}})
	}
	happen(1, "demo", lifecycle.SessionCreated)
	var got []string
	for e, err := range b.client.FollowAll(t.Context(), client.Latest, client.LifecycleFilter{Agent: "demo", Types: []string{client.SessionRunningEvent}}) {
		require.NoError(t, err)
		got = append(got, fmt.Sprint(e.Type, " ", e.Position, " ", e.Marker()))
		if e.Marker() {
			b.server.CloseClientConnections()
			happen(2, "other", lifecycle.SessionRunning)
			happen(3, "demo", lifecycle.SessionHibernated)
			happen(4, "demo", lifecycle.SessionRunning)
		}
		if e.Position == 4 {
			b.server.CloseClientConnections()
			happen(5, "demo", lifecycle.SessionRunning)
		}
		if e.Position == 5 {
			break
		}
	}
	require.Equal(t, []string{"caught_up 1 true", "session.running 4 false", "session.running 5 false"}, got)
	for _, err := range b.client.FollowAll(t.Context(), client.Oldest, client.LifecycleFilter{Types: []string{"none"}}) {
		require.ErrorContains(t, err, string(client.CodeInvalid))
	}
}
