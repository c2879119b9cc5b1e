package postgres_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/checkpoint"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/listing"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// turn runs a prompt to its outcome with one message of the agent.
func (b *harness) turn(t *testing.T, text string, outcome session.Outcome) (promptID, runID string) {
	t.Helper()
	promptID = b.submit(t, text)
	runID = b.begin(t, promptID)
	b.say(t, runID, text)
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: outcome})
	require.NoError(t, err)
	return promptID, runID
}

// say appends a complete block with a text.
func (b *harness) say(t *testing.T, runID, text string) {
	t.Helper()
	block := conversation.Block{ID: "block-" + text, Type: conversation.AssistantText, Status: conversation.Complete, Content: text}
	data, err := json.Marshal(conversation.BlockComplete{Block: block})
	require.NoError(t, err)
	verdicts, err := b.EventsAppend(b.ctx, []eventlog.Append{{
		SessionID: b.id, RunID: runID, Token: "t1", Generation: b.generation(t),
		Events: []eventlog.Draft{draft(string(conversation.EventBlockComplete), 0, 0, string(data))},
	}})
	require.NoError(t, err)
	require.NoError(t, verdicts[0])
}

// snapshotted commits a bundle of a snapshot at the current end of the log.
func (b *harness) snapshotted(t *testing.T, snapshotID string) bundle.View {
	t.Helper()
	bundle := bundle.Bundle{ID: session.NewID(session.BundlePrefix), SessionID: b.id, Generation: b.generation(t), SnapshotID: snapshotID, Verified: true, Checkpoint: true}
	require.NoError(t, b.SnapshotRecord(b.ctx, b.id, bundle.Generation, snapshotID))
	require.NoError(t, b.BundleCommit(b.ctx, bundle))
	return b.show(t, bundle.ID)
}

func (b *harness) show(t *testing.T, bundleID string) bundle.View {
	t.Helper()
	v, err := b.BundleShow(b.ctx, bundleID)
	require.NoError(t, err)
	return v
}

// texts returns the texts of the blocks of the main conversation at a bundle, read in pages of one
// block.
func (b *harness) texts(t *testing.T, bundleID string) []string {
	t.Helper()
	texts := []string{}
	for cursor := ""; ; {
		c, next, err := b.ConversationAt(b.ctx, bundleID, 1, cursor)
		require.NoError(t, err)
		for _, block := range c.Threads[0].Blocks {
			texts = append(texts, block.Content)
		}
		if cursor = next; next == "" {
			return texts
		}
	}
}

func TestBundleNamesLastPrompt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	empty := b.snapshotted(t, "im-0")
	require.Empty(t, empty.PromptID)
	require.Empty(t, empty.Outcome)
	first, _ := b.turn(t, "one", session.OutcomeCompleted)
	one := b.snapshotted(t, "im-1")
	second, _ := b.turn(t, "two", session.OutcomeFailed)
	two := b.snapshotted(t, "im-2")
	b.submit(t, "waits")
	three := b.snapshotted(t, "im-3")
	require.Equal(t, first, one.PromptID)
	require.Equal(t, session.OutcomeCompleted, one.Outcome)
	require.Equal(t, second, two.PromptID)
	require.Equal(t, session.OutcomeFailed, two.Outcome)
	require.Equal(t, second, three.PromptID, "the agent has not received the waiting prompts")
	require.Less(t, one.LastSeq, two.LastSeq)

	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, three.ID, s.Head)
	require.Equal(t, one.ID, s.HeadSuccess, "a turn that failed moves only the head")
	require.Equal(t, checkpoint.Saves{Policy: checkpoint.Hibernate}, s.Saves)
	b.sql(t, `UPDATE sessions SET options = '{"checkpoint": "10m0s"}'`)
	s, err = b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, checkpoint.Saves{Policy: "10m0s", Newest: three.CreatedAt}, s.Saves)
	listed, _, err := b.SessionList(b.ctx, listing.Filter{})
	require.NoError(t, err)
	require.Equal(t, s.HeadSuccess, listed[0].HeadSuccess)

	// A bundle of the previous release has no such data.
	b.sql(t, "UPDATE bundles SET last_seq = NULL, prompt_id = NULL, outcome = NULL, manifest = json_build_object('lastSeq', last_seq)")
	for _, want := range []bundle.View{empty, one, two, three} {
		got := b.show(t, want.ID)
		require.Equal(t, want.PromptID, got.PromptID)
		require.Equal(t, want.Outcome, got.Outcome)
		require.Equal(t, want.LastSeq, got.LastSeq)
	}
}

func TestConversationOfBundleIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	one := b.snapshotted(t, "im-1")
	_, run := b.turn(t, "two", session.OutcomeCompleted)
	two := b.snapshotted(t, "im-2")
	require.NoError(t, b.SessionRevert(b.ctx, b.id, 1, []string{run}, nil))
	reverted := b.snapshotted(t, "im-3")
	third, _ := b.turn(t, "three", session.OutcomeCompleted)
	three := b.snapshotted(t, "im-4")
	require.Equal(t, []string{"one"}, b.texts(t, one.ID))
	require.Equal(t, []string{"one", "two"}, b.texts(t, two.ID), "what a revert removed later is there")
	require.Equal(t, []string{"one"}, b.texts(t, reverted.ID))
	require.Equal(t, one.PromptID, reverted.PromptID, "the agent knows nothing of a prompt that was reverted")
	require.Equal(t, []string{"one", "three"}, b.texts(t, three.ID))
	require.Equal(t, third, three.PromptID)
	_, _, err := b.ConversationAt(b.ctx, session.NewID(session.BundlePrefix), 0, "")
	requireCode(t, failure.NoBundle, err)
}

func TestBundlesAreListedNewestFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, err := b.BundleList(b.ctx, session.NewID(session.SessionPrefix), 0, "")
	requireCode(t, failure.NoSession, err)
	items, next, err := b.BundleList(b.ctx, b.id, 0, "")
	require.NoError(t, err)
	require.Empty(t, items)
	require.Empty(t, next)
	b.running(t)
	var want []string
	for i := range 5 {
		want = append([]string{b.commit(t, fmt.Sprintf("im-%d", i)).ID}, want...)
	}
	var got []string
	for cursor := ""; ; cursor = next {
		items, next, err = b.BundleList(b.ctx, b.id, 2, cursor)
		require.NoError(t, err)
		for _, v := range items {
			got = append(got, v.ID)
			require.True(t, v.HasFiles)
			require.Empty(t, v.Manifest.AgentFiles)
			require.Equal(t, "h", v.Manifest.Git.Head)
			require.Equal(t, len(got) == 1, v.Head)
		}
		if next == "" {
			break
		}
	}
	require.Equal(t, want, got)
	require.Len(t, b.show(t, want[0]).Manifest.AgentFiles, 1)
	_, _, err = b.BundleList(b.ctx, b.id, 2, "?")
	requireCode(t, failure.Invalid, err)
}

func TestReceiptOfRestoreIsKeptWithItsBundle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	head := b.commit(t, "im-1")
	require.Nil(t, b.show(t, head.ID).Receipt)
	for _, event := range []session.Event{session.EventHibernate, session.EventSaved, session.EventWake} {
		b.transit(t, event, "")
	}
	ready := b.next(t, session.EventReady, "")
	ready.Receipt = &receipt.Receipt{Kind: receipt.Partial, Missing: []string{"x"}}
	require.NoError(t, b.TransitionRecord(b.ctx, ready))
	got := b.show(t, head.ID)
	require.Equal(t, ready.Receipt, got.Receipt)
	require.False(t, got.RestoredAt.IsZero())
}

func TestNewestBundlesAreKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.keep(t, 3)
	b.running(t)
	var ids []string
	for i := range 4 {
		ids = append(ids, b.commit(t, fmt.Sprintf("im-%d", i)).ID)
	}
	require.NoError(t, b.BundleProve(b.ctx, ids[3]))
	require.Equal(t, []string{"im-0"}, b.condemned(t), "the newest three are kept, although the fourth was proved")
	require.False(t, b.show(t, ids[0]).HasFiles)
	_, err := b.BundlePin(b.ctx, ids[0], true)
	requireCode(t, failure.IllegalState, err)
	require.NoError(t, b.SnapshotsForget(b.ctx, []string{"im-0"}))
	_, err = b.BundleShow(b.ctx, ids[0])
	requireCode(t, failure.NoBundle, err)

	pinned, err := b.BundlePin(b.ctx, ids[1], true)
	require.NoError(t, err)
	require.False(t, pinned.PinnedAt.IsZero())
	b.commit(t, "im-4")
	last := b.commit(t, "im-5")
	require.NoError(t, b.BundleProve(b.ctx, last.ID))
	require.Equal(t, []string{"im-2"}, b.condemned(t))
	b.transit(t, session.EventStop, "")
	require.NotContains(t, b.condemned(t), "im-1", "a pin outlives the session")
	_, err = b.BundlePin(b.ctx, ids[1], false)
	require.NoError(t, err)
	require.Contains(t, b.condemned(t), "im-1")
	_, err = b.BundlePin(b.ctx, session.NewID(session.BundlePrefix), true)
	requireCode(t, failure.NoBundle, err)
}

func TestPurgeDeletesImagesOfPinnedBundles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	head := b.commit(t, "im-1")
	_, err := b.BundlePin(b.ctx, head.ID, true)
	require.NoError(t, err)
	b.transit(t, session.EventStop, "")
	require.Empty(t, b.condemned(t))
	_, err = b.PurgeImages(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, []string{"im-1"}, b.condemned(t))
}

func TestSessionHasBoundedNumberOfPins(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	head := b.commit(t, "im-1")
	b.sql(t, `INSERT INTO bundles (id, session_id, parent_id, generation, snapshot_id, manifest, verified, created_at, pinned_at)
		SELECT 'bun_' || i, session_id, '', 1, '', '{}', true, now(), now() FROM bundles, generate_series(1, 100) i`)
	_, err := b.BundlePin(b.ctx, head.ID, true)
	requireCode(t, failure.LimitReached, err)
}

func TestCheckpointIsDeletedWithItsSnapshot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.keep(t, 1)
	b.running(t)
	left := b.snapshotted(t, "im-1")
	other := b.snapshotted(t, "im-2")
	last := b.snapshotted(t, "im-3")
	require.NoError(t, b.BundleProve(b.ctx, last.ID))
	require.Equal(t, []string{"im-1", "im-2"}, b.condemned(t))
	b.sql(t, "UPDATE snapshots SET deleted_at = now() WHERE id = 'im-1'") // like the previous release, which left the row
	b.show(t, left.ID)
	require.NoError(t, b.SnapshotsForget(b.ctx, []string{"im-2"}))
	for _, v := range []bundle.View{left, other} {
		_, err := b.BundleShow(b.ctx, v.ID)
		requireCode(t, failure.NoBundle, err)
	}
	b.show(t, last.ID)
}
