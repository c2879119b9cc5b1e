package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// commit makes a bundle of a snapshot of the newest generation.
func (b *bundle) commit(t *testing.T, snapshotID string) session.Bundle {
	t.Helper()
	bundle := session.Bundle{
		ID: session.NewID(session.BundlePrefix), SessionID: b.id, Generation: b.generation(t), SnapshotID: snapshotID, Verified: true,
		Manifest:  session.Manifest{AgentFiles: []session.ManifestFile{{Path: "/a", Size: 1, SHA256: "x"}}, Git: &session.ManifestGit{Head: "h"}, LastSeq: 3},
		CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
	require.NoError(t, b.SnapshotRecord(b.ctx, b.id, bundle.Generation, snapshotID))
	require.NoError(t, b.BundleCommit(b.ctx, bundle))
	return bundle
}

func (b *bundle) unreferenced(t *testing.T, age time.Duration) []string {
	t.Helper()
	ids, err := b.SnapshotsUnreferenced(b.ctx, age, 100)
	require.NoError(t, err)
	return ids
}

func TestABundleBecomesTheHead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.BundleHead(b.ctx, b.id)
	requireCode(t, session.CodeNoBundle, err)
	b.reserve(t, 1)
	first := b.commit(t, "im-a")
	head, err := b.BundleHead(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, first, head)
	second := b.commit(t, "im-b")
	require.NoError(t, b.BundleCommit(b.ctx, first), "the same again changes nothing")
	head, err = b.BundleHead(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, second.ID, head.ID)
	require.Equal(t, first.ID, head.ParentID)
	loaded, err := b.SessionOpen(b.ctx, b.id, "w1")
	require.NoError(t, err)
	require.Equal(t, &session.BundleRef{ID: second.ID, SnapshotID: "im-b"}, loaded.Head)
	require.NoError(t, b.BundleProve(b.ctx, second.ID))
	requireCode(t, session.CodeNoBundle, b.BundleProve(b.ctx, "bun_nobody"))

	late := first
	late.ID = session.NewID(session.BundlePrefix)
	b.reserve(t, 2)
	requireCode(t, session.CodeIllegalState, b.BundleCommit(b.ctx, late))
	late.Generation, late.SnapshotID = 2, "im-unheard-of"
	requireCode(t, session.CodeIllegalState, b.BundleCommit(b.ctx, late))
	late.SnapshotID = ""
	require.NoError(t, b.BundleCommit(b.ctx, late), "transcripts alone can be a bundle")
	stolen := late
	stolen.SessionID = b.session(t)
	requireCode(t, session.CodeIllegalState, b.BundleCommit(b.ctx, stolen))
}

func TestASnapshotIsKeptWhileABundleNeedsIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.commit(t, "im-a")
	second := b.commit(t, "im-b")
	third := b.commit(t, "im-c")
	require.Empty(t, b.unreferenced(t, 0), "nothing has been proved yet")
	require.NoError(t, b.BundleProve(b.ctx, second.ID))
	require.Equal(t, []string{"im-a"}, b.unreferenced(t, 0))
	require.Equal(t, []string{"im-a"}, b.unreferenced(t, time.Hour), "until it is forgotten")
	require.NoError(t, b.SnapshotForget(b.ctx, "im-a"))
	require.Empty(t, b.unreferenced(t, 0))
	require.NoError(t, b.BundleProve(b.ctx, third.ID))
	require.Equal(t, []string{"im-b"}, b.unreferenced(t, 0))

	// A rescue makes a new bundle of an old snapshot.
	rescue := session.Bundle{ID: session.NewID(session.BundlePrefix), SessionID: b.id, Generation: 1, SnapshotID: "im-c"}
	require.NoError(t, b.BundleCommit(b.ctx, rescue))
	require.NoError(t, b.BundleProve(b.ctx, rescue.ID))
	require.Equal(t, []string{"im-b"}, b.unreferenced(t, 0), "the older bundle of it does not count against it")
	rescue.ID, rescue.SnapshotID = session.NewID(session.BundlePrefix), "im-b"
	requireCode(t, session.CodeIllegalState, b.BundleCommit(b.ctx, rescue))

	b.transit(t, session.EventStop, "")
	require.ElementsMatch(t, []string{"im-b", "im-c"}, b.unreferenced(t, time.Hour))
}

func TestASnapshotWithoutABundleIsGivenTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.SnapshotRecord(b.ctx, b.id, 1, "im-young"))
	require.NoError(t, b.SnapshotRecord(b.ctx, b.id, 1, "im-old"))
	require.NoError(t, b.SnapshotRecord(b.ctx, b.id, 1, "im-old"))
	b.sql(t, "UPDATE snapshots SET created_at = now() - interval '2 hours' WHERE id = 'im-old'")
	require.Equal(t, []string{"im-old"}, b.unreferenced(t, time.Hour))
	requireCode(t, session.CodeNoSession, b.SnapshotRecord(b.ctx, "ses_nobody", 1, "im-x"))
}
