package postgres_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agentmessage"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// message sends a message as the session's agent.
func (b *harness) message(t *testing.T, id, to string, depth int64) (session.Prompt, error) {
	t.Helper()
	return b.PromptByAgent(b.ctx, agentmessage.Message{ID: id, From: b.id, To: to, Content: "the message", Depth: depth})
}

// TestAgentsMessageParentAndForks also checks that they reach no other session.
func TestAgentsMessageParentAndForks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	one := b.snapshotted(t, "im-1")
	f, other := b.fork(t, fork.Fork{BundleID: one.ID}), b.fork(t, fork.Fork{BundleID: one.ID})
	f.transit(t, session.EventWake, "")
	f.reserve(t, 1)
	f.transit(t, session.EventReady, "")
	f.turn(t, "two", session.OutcomeCompleted)
	below := f.fork(t, fork.Fork{BundleID: f.snapshotted(t, "im-2").ID})
	stranger := &harness{DB: b.DB, ctx: b.ctx, id: b.session(t)}

	const note = "the message"
	up, down := "a fork of this one", "the parent of this one"
	for i, c := range []struct {
		from      *harness
		to, wants string // the session that receives the message; empty for none
		says      string
	}{
		{b, "", b.id, ""},
		{b, "self", b.id, ""},
		{b, b.id, b.id, ""},
		{b, f.id, f.id, down},
		{b, other.id, other.id, down},
		{f, "parent", b.id, up},
		{f, b.id, b.id, up},
		{f, below.id, below.id, down},
		{below, "parent", f.id, up},
		{b, below.id, "", "its forks are " + other.id + ", " + f.id},
		{b, "parent", "", "it has no parent"},
		{f, other.id, "", "its parent is " + b.id},
		{below, b.id, "", "it has no forks"},
		{b, stranger.id, "", "not " + stranger.id},
		{stranger, b.id, "", "it has no parent, and it has no forks"},
		{b, session.NewID(session.SessionPrefix), "", "reaches itself"},
	} {
		shown := fmt.Sprint(i, " ", c.to)
		p, err := c.from.message(t, fmt.Sprintf("m%d", i), c.to, 0)
		if c.wants == "" {
			require.Equal(t, failure.Forbidden, failure.CodeOf(err), shown)
			require.ErrorContains(t, err, c.says, shown)
			continue
		}
		require.NoError(t, err, shown)
		require.Equal(t, c.wants, p.SessionID, shown)
		require.Equal(t, "agent:"+c.from.id, p.Author, shown)
		require.EqualValues(t, 1, p.Depth, shown)
		require.Contains(t, p.Content, note, shown)
		require.Contains(t, p.Content, c.says, shown)
		if c.says == "" {
			require.Equal(t, note, p.Content, shown)
		}
		again, err := c.from.message(t, fmt.Sprintf("m%d", i), c.to, 0)
		require.NoError(t, err, shown)
		require.Equal(t, p.Ordinal, again.Ordinal, "once")
		stored, err := b.PromptGet(b.ctx, c.wants, p.ID)
		require.NoError(t, err)
		require.EqualValues(t, 1, stored.Depth)
	}
}

// TestMessageWakesHibernatedSession checks that its workflow must be signalled.
func TestMessageWakesHibernatedSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	f := b.fork(t, fork.Fork{BundleID: b.snapshotted(t, "im-1").ID})
	p, err := b.message(t, "m", f.id, 0)
	require.NoError(t, err)
	require.True(t, p.Notify)
	require.Equal(t, session.PromptQueued, p.Status)
}

// TestMessagesOfAgentsAreBounded checks the limits on the messages of an agent until a person sends
// a prompt to the session, and on the depth of the chain.
func TestMessagesOfAgentsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	one := b.snapshotted(t, "im-1")
	f, other := b.fork(t, fork.Fork{BundleID: one.ID}), b.fork(t, fork.Fork{BundleID: one.ID})
	for i := range session.MaxAgentPrompts {
		_, err := f.message(t, fmt.Sprintf("f%d", i), "parent", 0)
		require.NoError(t, err)
	}
	_, err := f.message(t, "beyond", "parent", 0)
	require.Equal(t, failure.LimitReached, failure.CodeOf(err))
	require.ErrorContains(t, err, "which is the limit")
	_, err = f.message(t, "f0", "parent", 0)
	require.NoError(t, err, "it is stored")
	_, err = other.message(t, "other", "parent", 0)
	require.NoError(t, err, "another agent")
	_, err = f.message(t, "here", "self", 0)
	require.NoError(t, err, "another session")
	b.submit(t, "by a person")
	_, err = f.message(t, "next", "parent", 0)
	require.NoError(t, err)

	deep, err := other.message(t, "deep", "parent", session.MaxAgentDepth-1)
	require.NoError(t, err)
	require.EqualValues(t, session.MaxAgentDepth, deep.Depth)
	_, err = other.message(t, "deeper", "parent", session.MaxAgentDepth)
	require.Equal(t, failure.LimitReached, failure.CodeOf(err))
	require.ErrorContains(t, err, "a person must send the next prompt")
	_, err = other.message(t, "deeper", "self", session.MaxAgentDepth)
	require.Equal(t, failure.LimitReached, failure.CodeOf(err))
}

// TestMessagesToUnavailableSessions checks the error returned to the agent.
func TestMessagesToUnavailableSessions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	f := b.fork(t, fork.Fork{BundleID: b.snapshotted(t, "im-1").ID})
	b.transit(t, session.EventFail, "no space")
	_, err := f.message(t, "m", "parent", 0)
	require.Equal(t, failure.InError, failure.CodeOf(err))
	b.transit(t, session.EventStop, "")
	_, err = f.message(t, "m", "parent", 0)
	require.Equal(t, failure.Terminated, failure.CodeOf(err))
	_, err = b.message(t, "m", f.id, 0)
	require.NoError(t, err, "its fork lives on")
}
