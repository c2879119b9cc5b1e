package postgres_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/image"
	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// commit makes a bundle of a snapshot of the newest generation.
func (b *harness) commit(t *testing.T, snapshotID string) bundle.Bundle {
	t.Helper()
	bundle := bundle.Bundle{
		ID: session.NewID(session.BundlePrefix), SessionID: b.id, Generation: b.generation(t), SnapshotID: snapshotID, Verified: true,
		Manifest:  manifest.Manifest{AgentFiles: []manifest.File{{Path: "/a", Size: 1, SHA256: "x"}}, Git: &manifest.Git{Head: "h"}, LastSeq: 3},
		CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
	require.NoError(t, b.SnapshotRecord(b.ctx, b.id, bundle.Generation, snapshotID))
	require.NoError(t, b.BundleCommit(b.ctx, bundle))
	return bundle
}

// condemned makes all marked snapshots due and returns those that may be deleted now.
func (b *harness) condemned(t *testing.T) []string {
	t.Helper()
	b.sql(t, "UPDATE snapshots SET delete_after = now()")
	ids, err := b.SnapshotsCondemn(b.ctx, 100)
	require.NoError(t, err)
	return ids
}

// keep makes the installation keep n bundles of each session.
func (b *harness) keep(t *testing.T, n int) {
	t.Helper()
	_, err := b.Installation(b.ctx)
	require.NoError(t, err)
	b.sql(t, "UPDATE installation SET keep_bundles = "+strconv.Itoa(n))
}

func TestBundleBecomesHead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.BundleHead(b.ctx, b.id)
	requireCode(t, failure.NoBundle, err)
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
	requireCode(t, failure.NoBundle, b.BundleProve(b.ctx, "bun_nobody"))

	late := first
	late.ID = session.NewID(session.BundlePrefix)
	b.reserve(t, 2)
	requireCode(t, failure.IllegalState, b.BundleCommit(b.ctx, late))
	late.Generation, late.SnapshotID = 2, "im-unheard-of"
	requireCode(t, failure.IllegalState, b.BundleCommit(b.ctx, late))
	late.SnapshotID = ""
	require.NoError(t, b.BundleCommit(b.ctx, late), "transcripts alone can be a bundle")
	stolen := late
	stolen.SessionID = b.session(t)
	requireCode(t, failure.IllegalState, b.BundleCommit(b.ctx, stolen))
}

func TestSnapshotIsKeptWhileBundleNeedsIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.keep(t, 1)
	b.running(t)
	b.commit(t, "im-a")
	second := b.commit(t, "im-b")
	third := b.commit(t, "im-c")
	require.Empty(t, b.condemned(t), "nothing has been proved yet")
	require.NoError(t, b.BundleProve(b.ctx, second.ID))
	require.Equal(t, []string{"im-a"}, b.condemned(t))
	require.Equal(t, []string{"im-a"}, b.condemned(t), "until it is forgotten")
	require.NoError(t, b.SnapshotsForget(b.ctx, []string{"im-a"}))
	require.Empty(t, b.condemned(t))
	require.NoError(t, b.BundleProve(b.ctx, third.ID))
	require.Equal(t, []string{"im-b"}, b.condemned(t))

	// A rescue commits a new bundle with an old snapshot.
	rescue := bundle.Bundle{ID: session.NewID(session.BundlePrefix), SessionID: b.id, Generation: 1, SnapshotID: "im-c"}
	require.NoError(t, b.BundleCommit(b.ctx, rescue))
	require.NoError(t, b.BundleProve(b.ctx, rescue.ID))
	require.Equal(t, []string{"im-b"}, b.condemned(t), "the older bundle of it does not count against it")
	rescue.ID, rescue.SnapshotID = session.NewID(session.BundlePrefix), "im-b"
	requireCode(t, failure.IllegalState, b.BundleCommit(b.ctx, rescue))

	b.transit(t, session.EventStop, "")
	require.ElementsMatch(t, []string{"im-b", "im-c"}, b.condemned(t))
	require.NoError(t, b.SnapshotRecord(b.ctx, b.id, 1, "im-late"))
	require.ElementsMatch(t, []string{"im-b", "im-c", "im-late"}, b.condemned(t), "what is recorded after the end is not needed either")
}

func TestSessionWithMismatchedRestoresKeepsThreeSnapshots(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.keep(t, 1)
	b.running(t)
	b.commit(t, "im-1")
	b.commit(t, "im-2")
	third := b.commit(t, "im-3")
	require.Empty(t, b.condemned(t))
	b.commit(t, "im-4")
	require.Equal(t, []string{"im-1"}, b.condemned(t))
	require.NoError(t, b.SnapshotsForget(b.ctx, []string{"im-1"}))
	b.commit(t, "im-5")
	require.Equal(t, []string{"im-2"}, b.condemned(t))
	require.NoError(t, b.SnapshotsForget(b.ctx, []string{"im-2"}))

	// The newest proved bundle is kept in addition to the three.
	require.NoError(t, b.BundleProve(b.ctx, third.ID))
	for _, id := range []string{"im-6", "im-7", "im-8"} {
		b.commit(t, id)
	}
	require.Equal(t, []string{"im-4", "im-5"}, b.condemned(t))
}

func TestMarkOnNeededSnapshotIsRemoved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.commit(t, "im-a")
	b.sql(t, "UPDATE snapshots SET unneeded_at = now()")
	require.Empty(t, b.condemned(t))
	rescue := bundle.Bundle{ID: session.NewID(session.BundlePrefix), SessionID: b.id, Generation: 1, SnapshotID: "im-a"}
	require.NoError(t, b.BundleCommit(b.ctx, rescue), "it is not condemned")
	b.sql(t, "UPDATE snapshots SET delete_after = now()")
	again, err := b.SnapshotsCondemn(b.ctx, 100)
	require.NoError(t, err)
	require.Empty(t, again)
}

func TestTemporarilyKeptSnapshotIsNeeded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.keep(t, 1)
	b.running(t)
	b.commit(t, "im-a")
	second := b.commit(t, "im-b")
	b.sql(t, "UPDATE snapshots SET kept_until = now() + interval '1 hour' WHERE id = 'im-a'")
	require.NoError(t, b.BundleProve(b.ctx, second.ID))
	require.Empty(t, b.condemned(t))
	b.sql(t, "UPDATE snapshots SET kept_until = now() WHERE id = 'im-a'")
	_, err := b.SnapshotsAudit(b.ctx, "", 10)
	require.NoError(t, err)
	require.Equal(t, []string{"im-a"}, b.condemned(t))
}

func TestMissedMarkIsRepeated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	for _, id := range []string{"im-1", "im-2", "im-3"} {
		b.commit(t, id)
	}
	b.transit(t, session.EventStop, "")
	b.sql(t, "UPDATE snapshots SET unneeded_at = NULL")
	require.Empty(t, b.condemned(t))
	next, err := b.SnapshotsAudit(b.ctx, "", 2)
	require.NoError(t, err)
	require.Equal(t, "im-2", next)
	require.Equal(t, []string{"im-1", "im-2"}, b.condemned(t))
	next, err = b.SnapshotsAudit(b.ctx, next, 2)
	require.NoError(t, err)
	require.Empty(t, next)
	require.Len(t, b.condemned(t), 3)
}

func TestSnapshotWithoutBundleIsKeptForGracePeriod(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.SnapshotRecord(b.ctx, b.id, 1, "im-young"))
	require.NoError(t, b.SnapshotRecord(b.ctx, b.id, 1, "im-old"))
	require.NoError(t, b.SnapshotRecord(b.ctx, b.id, 1, "im-old"))
	b.sql(t, "UPDATE snapshots SET created_at = now() - interval '2 hours' WHERE id = 'im-old'")
	require.NoError(t, b.SnapshotsAge(b.ctx, time.Hour))
	require.Equal(t, []string{"im-old"}, b.condemned(t))
}

// TestBundleOfOlderReleaseIsNotAged checks snapshots that such a release has not marked as
// bundled.
func TestBundleOfOlderReleaseIsNotAged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.commit(t, "im-a")
	b.sql(t, "UPDATE snapshots SET bundled = false, created_at = now() - interval '2 hours'")
	require.NoError(t, b.SnapshotsAge(b.ctx, time.Hour))
	b.sql(t, "UPDATE snapshots SET delete_after = now()")
	ids, err := b.SnapshotsCondemn(b.ctx, 100)
	require.NoError(t, err)
	require.Empty(t, ids)
}

func TestFailedImageDeletionBacksOff(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.commit(t, "im-a")
	b.transit(t, session.EventStop, "")
	var pauses []float64
	for range 7 {
		ids, err := b.SnapshotsCondemn(b.ctx, 100)
		require.NoError(t, err)
		require.Equal(t, []string{"im-a"}, ids)
		ids, err = b.SnapshotsCondemn(b.ctx, 100)
		require.NoError(t, err)
		require.Empty(t, ids, "no other caller gets it meanwhile")
		var pause float64
		b.row(t, &pause, "SELECT round(extract(epoch FROM delete_after - now()) / 30) * 30 FROM snapshots")
		pauses = append(pauses, pause)
		b.sql(t, "UPDATE snapshots SET delete_after = now()")
	}
	require.Equal(t, []float64{30, 60, 120, 240, 480, 600, 600}, pauses)
	counts, err := b.ImageCounts(b.ctx, time.Hour)
	require.NoError(t, err)
	require.Equal(t, image.Counts{Unneeded: 1, Failing: 1}, counts)
}
