package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// toBundle makes a bundle the target of a revert.
func toBundle(id string) func(*session.Command) {
	return func(c *session.Command) { c.BundleID = id }
}

// toPrompt makes the state before a prompt the target of a revert.
func toPrompt(id string) func(*session.Command) {
	return func(c *session.Command) { c.PromptID = id }
}

// restoring brings the session to the restore in a generation.
func (b *harness) restoring(t *testing.T, generation int64) {
	t.Helper()
	b.transit(t, session.EventHibernate, session.ReasonRestart)
	b.transit(t, session.EventSaved, "")
	b.transit(t, session.EventWake, session.ReasonRestart)
	b.reserve(t, generation)
}

func TestSessionIsRevertedToBundle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	one := b.snapshotted(t, "im-1")
	second, _ := b.turn(t, "two", session.OutcomeCompleted)
	two := b.snapshotted(t, "im-2")
	third, _ := b.turn(t, "three", session.OutcomeFailed)
	require.NoError(t, b.TranscriptAppend(b.ctx, []transcript.Segment{{SessionID: b.id, Path: "/t", Data: []byte("one two three")}}))

	byPrompt := b.command(t, session.CommandRevertFiles, toPrompt(third)).Command
	require.Equal(t, two.ID, byPrompt.BundleID, "the bundle before the prompt")
	pending := b.command(t, session.CommandRevertFiles, toPrompt(second)).Command
	require.Equal(t, one.ID, pending.BundleID, "the newest revert counts")
	waits := b.submit(t, "waits")
	_, err := b.RunBegin(b.ctx, b.id, waits, session.NewID(session.RunPrefix), 1)
	requireCode(t, failure.IllegalState, err)
	look, err := b.SessionLook(b.ctx, b.id, "")
	require.NoError(t, err)
	seen := session.ForWorkflow(look.Commands, look.Status)
	require.Equal(t, session.CommandRestart, seen[0].Kind)
	require.Equal(t, pending.ID, seen[0].ID)

	three := b.snapshotted(t, "im-3") // the session is saved first
	b.restoring(t, 2)
	due, ok, err := b.RevertDue(b.ctx, b.id)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, bundle.RevertDue{CommandID: pending.ID, Bundle: one.Bundle}, due)
	requireCode(t, failure.IllegalState, b.SessionRevertTo(b.ctx, b.id, 1, pending.ID))
	requireCode(t, failure.IllegalState, b.SessionRevertTo(b.ctx, b.id, 2, byPrompt.ID))
	require.NoError(t, b.SessionRevertTo(b.ctx, b.id, 2, pending.ID))
	requireCode(t, failure.IllegalState, b.SessionRevertTo(b.ctx, b.id, 2, pending.ID))
	_, ok, err = b.RevertDue(b.ctx, b.id)
	require.NoError(t, err)
	require.False(t, ok)

	require.Equal(t, []string{"one"}, b.spoken(t))
	for bundle, want := range map[string][]string{one.ID: {"one"}, two.ID: {"one", "two"}, three.ID: {"one", "two", "three"}} {
		require.Equal(t, want, b.texts(t, bundle))
	}
	for id, want := range map[string]string{second: session.ReasonReverted, third: session.ReasonReverted, waits: ""} {
		p, err := b.PromptGet(b.ctx, b.id, id)
		require.NoError(t, err)
		require.Equal(t, want, p.Reason)
	}
	positions, err := b.TranscriptPositions(b.ctx, b.id)
	require.NoError(t, err)
	require.Empty(t, positions)
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	head := b.show(t, s.Head)
	require.Equal(t, one.SnapshotID, head.SnapshotID)
	require.Equal(t, one.ID, head.ParentID)
	require.Equal(t, one.PromptID, head.PromptID)
	require.Equal(t, s.Head, s.HeadSuccess)
	older, err := b.BundlesRestorable(b.ctx, b.id, one.SnapshotID)
	require.NoError(t, err)
	require.Empty(t, older, "undone files replace nothing")

	// The session continues from there. A bundle that was undone can be forked, but not reverted
	// to.
	b.transit(t, session.EventReady, "")
	more := waits
	runID := b.begin(t, waits)
	b.say(t, runID, "more")
	_, err = b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	require.Equal(t, []string{"one", "more"}, b.spoken(t))
	require.Equal(t, []string{"one", "two", "three"}, b.fork(t, fork.Fork{BundleID: three.ID}).spoken(t))
	require.Equal(t, []string{"one"}, b.fork(t, fork.Fork{PromptID: more, Before: true}).spoken(t))
	_, err = b.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandRevertFiles, BundleID: two.ID})
	requireCode(t, failure.IllegalState, err)
	require.ErrorContains(t, err, "fork the session")
	again := b.command(t, session.CommandRevertFiles, toPrompt(more)).Command
	require.Equal(t, s.Head, again.BundleID)
}

func TestRevertEventNamesTarget(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first, _ := b.turn(t, "one", session.OutcomeCompleted)
	one := b.snapshotted(t, "im-1")
	second, _ := b.turn(t, "two", session.OutcomeCompleted)
	third, _ := b.turn(t, "three", session.OutcomeCompleted)
	two := b.snapshotted(t, "im-2")
	waits := b.submit(t, "waits")
	for _, tt := range []struct {
		kind   session.CommandKind
		change func(*session.Command)
		code   failure.Code
	}{
		{session.CommandRevertFiles, toPrompt(third), failure.NoBundleThere},
		{session.CommandRevertFiles, toPrompt(first), failure.NoBundleThere},
		{session.CommandRevertFiles, toPrompt(waits), failure.IllegalState},
		{session.CommandRevertFiles, toPrompt("none"), failure.NoPrompt},
		{session.CommandRevertFiles, toBundle(session.NewID(session.BundlePrefix)), failure.NoBundle},
		{session.CommandRevert, toBundle(session.NewID(session.BundlePrefix)), failure.NoBundle},
		{session.CommandRevert, toBundle(two.ID), failure.IllegalState}, // nothing was run after it
	} {
		c := session.Command{SessionID: b.id, Kind: tt.kind}
		tt.change(&c)
		_, err := b.CommandSubmit(b.ctx, c)
		requireCode(t, tt.code, err)
	}
	_, err := b.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandRevertFiles, PromptID: third})
	require.ErrorContains(t, err, "the nearest before is "+one.ID)
	require.ErrorContains(t, err, "the nearest after is "+two.ID)
	memory := b.command(t, session.CommandRevert, toBundle(one.ID)).Command
	require.Equal(t, second, memory.PromptID, "the agent alone is reverted to before the prompt that followed")

	// Only the newer one of the two kinds stays pending.
	files := b.command(t, session.CommandRevertFiles, toBundle(one.ID))
	require.Equal(t, []session.Command{*files.Command}, files.Session.Pending)
	b.restoring(t, 2)
	require.Equal(t, files.Command.ID, b.command(t, session.CommandRevertFiles, toBundle(one.ID)).Command.ID)
	_, err = b.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandRevertFiles, BundleID: two.ID})
	requireCode(t, failure.IllegalState, err)
}

// TestBundleOfPendingRevertIsKept checks that the bundle saved before the revert does not displace
// the target bundle.
func TestBundleOfPendingRevertIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.keep(t, 1)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	one := b.snapshotted(t, "im-1")
	b.turn(t, "two", session.OutcomeCompleted)
	two := b.snapshotted(t, "im-2")
	require.NoError(t, b.BundleProve(b.ctx, one.ID))
	b.command(t, session.CommandRevertFiles, toBundle(one.ID))
	require.NoError(t, b.BundleProve(b.ctx, two.ID)) // which releases the earlier ones
	due, _, err := b.RevertDue(b.ctx, b.id)
	require.NoError(t, err)
	require.Empty(t, due.Impossible)
	b.command(t, session.CommandRevert, toBundle(one.ID)) // ends the revert with files
	require.NoError(t, b.BundleProve(b.ctx, two.ID))
	require.Equal(t, 1, b.count(t, "snapshots WHERE id = 'im-1' AND unneeded_at IS NOT NULL"))
}
