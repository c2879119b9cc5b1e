package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// contents returns the files of a bundle, read in pages of one file, as "PATH CONTENT".
func (b *harness) contents(t *testing.T, bundleID string) []string {
	t.Helper()
	out := []string{}
	for cursor := ""; ; {
		items, next, err := b.BundleFileList(b.ctx, bundleID, "", 1, cursor)
		require.NoError(t, err)
		for _, info := range items {
			f, err := b.BundleFileGet(b.ctx, bundleID, info.Path)
			require.NoError(t, err)
			require.Equal(t, info, f.Info)
			out = append(out, info.Path+" "+string(f.Data)+string(info.Unsaved))
		}
		if cursor = next; next == "" {
			return out
		}
	}
}

// patch returns the diff of a bundle; empty if none was taken.
func (b *harness) patch(t *testing.T, bundleID string) string {
	t.Helper()
	d, err := b.BundleDiffGet(b.ctx, bundleID)
	require.NoError(t, err)
	if d == nil {
		return ""
	}
	return string(d.Patch)
}

func diffed(text string) *workspacefile.Diff {
	return &workspacefile.Diff{Key: text, Patch: []byte(text), At: time.Unix(1000, 0).UTC()}
}

func TestFilesOfBundleAreKept(t *testing.T) {
	t.Parallel()
	b, batch := filing(t)
	none := b.snapshotted(t, "im-0")
	batch.Changes, batch.Diff = []workspacefile.Change{written(1, "a", "1"), written(2, "b", "1"), written(3, "c", "1")}, diffed("one")
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	one := b.snapshotted(t, "im-1")
	batch.Changes, batch.Diff = []workspacefile.Change{written(4, "a", "2"), removed(5, "b"), written(6, "d", "2")}, diffed("two")
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	batch.Changes, batch.Diff = []workspacefile.Change{written(7, "a", "3")}, diffed("three")
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	two := b.snapshotted(t, "im-2")
	same := b.snapshotted(t, "im-3")
	batch.Changes, batch.Diff = []workspacefile.Change{written(8, "b", "4"), removed(9, "a"), removed(10, "c"), removed(11, "d")}, nil
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	fallen := b.snapshotted(t, "im-3") // with the previous snapshot, as after the loss of a sandbox
	last := b.snapshotted(t, "im-4")

	want := map[string][]string{
		none.ID: {}, one.ID: {"a 1", "b 1", "c 1"}, two.ID: {"a 3", "c 1", "d 2"}, same.ID: {"a 3", "c 1", "d 2"}, fallen.ID: {"a 3", "c 1", "d 2"}, last.ID: {"b 4"},
	}
	for id, files := range want {
		require.Equal(t, files, b.contents(t, id))
	}
	require.Empty(t, b.patch(t, none.ID))
	require.Equal(t, "one", b.patch(t, one.ID))
	require.Equal(t, "three", b.patch(t, two.ID))
	require.Equal(t, "three", b.patch(t, last.ID))
	require.Equal(t, []string{"b"}, b.paths(t, ""))
	_, err := b.BundleFileGet(b.ctx, two.ID, "b")
	requireCode(t, failure.NoFile, err)
	_, _, err = b.BundleFileList(b.ctx, session.NewID(session.BundlePrefix), "", 10, "")
	requireCode(t, failure.NoBundle, err)

	// The next bundle deletes files that belong to no bundle any more.
	kept := b.earlier(t)
	require.Contains(t, kept, "b 1 1,")
	b.sql(t, fmt.Sprintf("DELETE FROM bundles WHERE id = '%s'", one.ID))
	delete(want, one.ID)
	b.snapshotted(t, "im-5")
	require.Equal(t, strings.ReplaceAll(strings.ReplaceAll(kept, "a 1 1,", ""), "b 1 1,", ""), b.earlier(t))
	for id, files := range want {
		require.Equal(t, files, b.contents(t, id))
	}
}

// earlier returns the files that are kept for bundles, with their first and last epoch.
func (b *harness) earlier(t *testing.T) string {
	t.Helper()
	return query[string](b.ctx, t, b.url, "SELECT coalesce(string_agg(path || ' ' || from_epoch || ' ' || until_epoch || ',', '' ORDER BY path, from_epoch), '') FROM earlier_files")
}

func TestFilesOfForkAreKept(t *testing.T) {
	t.Parallel()
	b, batch := filing(t)
	batch.Changes, batch.Diff = []workspacefile.Change{written(1, "a", "1"), written(2, "b", "1")}, diffed("one")
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: batch.RunID, Token: "t1", Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	one := b.snapshotted(t, "im-1")
	f := b.fork(t, fork.Fork{BundleID: one.ID})
	g := b.fork(t, fork.Fork{BundleID: one.ID})
	h := f.fork(t, fork.Fork{BundleID: f.head(t)})
	batch.RunID, batch.Token = "", ""
	batch.Changes, batch.Diff = []workspacefile.Change{written(3, "a", "2"), removed(4, "b")}, diffed("two")
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	check := func() {
		t.Helper()
		for _, fork := range []*harness{f, g, h} {
			require.Equal(t, []string{"a 1", "b 1"}, fork.contents(t, fork.head(t)))
			require.Equal(t, "one", fork.patch(t, fork.head(t)))
		}
	}
	check()

	// The files outlive the session, and then the fork that inherited them.
	for _, gone := range []*harness{b, f} {
		_, err = b.PurgeRequest(b.ctx, gone.id, fork.Detach)
		require.NoError(t, err)
		gone.transit(t, session.EventStop, "")
		for range 2 {
			require.NoError(t, b.PurgeContent(b.ctx, gone.id))
		}
		if gone == b {
			check()
		}
	}
	for _, fork := range []*harness{g, h} {
		require.Equal(t, []string{"a 1", "b 1"}, fork.contents(t, fork.head(t)))
	}
}

// TestForkInheritsNoIncompleteFiles purges a session that has exceeded the limit on earlier files
// since it was forked.
func TestForkInheritsNoIncompleteFiles(t *testing.T) {
	t.Parallel()
	b, batch := filing(t)
	batch.Changes = []workspacefile.Change{written(1, "a", "1"), written(2, "b", "1")}
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: batch.RunID, Token: "t1", Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	f := b.fork(t, fork.Fork{BundleID: b.snapshotted(t, "im-1").ID})
	b.sql(t, `INSERT INTO earlier_files (session_id, size, sha256, mode, modified_at, unsaved, path, from_epoch, until_epoch)
		SELECT $1, 0, '', 0, now(), 'too_large', 'n' || n, 0, 9 FROM generate_series(1, 100000) n`, b.id)
	batch.RunID, batch.Token = "", ""
	batch.Changes = []workspacefile.Change{written(3, "a", "2")}
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	later := b.fork(t, fork.Fork{BundleID: b.snapshotted(t, "im-2").ID})
	_, _, err = f.BundleFileList(f.ctx, f.head(t), "", 10, "")
	requireCode(t, failure.NotSaved, err)

	_, err = b.PurgeRequest(b.ctx, b.id, fork.Detach)
	require.NoError(t, err)
	b.transit(t, session.EventStop, "")
	require.NoError(t, b.PurgeContent(b.ctx, b.id))
	_, _, err = f.BundleFileList(f.ctx, f.head(t), "", 10, "")
	requireCode(t, failure.NotSaved, err) // not a list without the file that was replaced
	require.Equal(t, []string{"a 2", "b 1"}, later.contents(t, later.head(t)))
}

func TestBundlesReportUnstoredFiles(t *testing.T) {
	t.Parallel()
	b, batch := filing(t)
	batch.Changes = []workspacefile.Change{written(1, "a", "1")}
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	one := b.snapshotted(t, "im-1")
	without := bundle.Bundle{ID: session.NewID(session.BundlePrefix), SessionID: b.id, Generation: b.generation(t)}
	require.NoError(t, b.BundleCommit(b.ctx, without))
	_, _, err := b.BundleFileList(b.ctx, without.ID, "", 10, "")
	requireCode(t, failure.NotSaved, err)
	require.ErrorContains(t, err, "without a snapshot")
	b.sql(t, fmt.Sprintf("UPDATE bundles SET files_epoch = NULL WHERE id = '%s'", one.ID)) // as committed by a worker of the previous release
	_, err = b.BundleDiffGet(b.ctx, one.ID)
	requireCode(t, failure.NotSaved, err)
	_, err = b.BundleFileGet(b.ctx, one.ID, "a")
	requireCode(t, failure.NotSaved, err)
	require.ErrorContains(t, err, "fork the session at it")

	// A purge deletes the files before the bundles.
	two := b.snapshotted(t, "im-2")
	require.Equal(t, []string{"a 1"}, b.contents(t, two.ID))
	_, err = b.PurgeRequest(b.ctx, b.id, fork.Refuse)
	require.NoError(t, err)
	b.transit(t, session.EventStop, "")
	require.NoError(t, b.PurgeContent(b.ctx, b.id))
	_, _, err = b.BundleFileList(b.ctx, two.ID, "", 10, "")
	requireCode(t, failure.NotSaved, err)
	_, err = b.BundleDiffGet(b.ctx, two.ID)
	requireCode(t, failure.NotSaved, err)
}

func TestFilesKeptForBundlesAreBounded(t *testing.T) {
	t.Parallel()
	b, batch := filing(t)
	big := strings.Repeat("x", workspacefile.MaxBytes)
	for epoch := range int64(2) {
		batch.Changes = nil
		for n := range int64(40) {
			batch.Changes = append(batch.Changes, written(1+100*epoch+n, fmt.Sprintf("f%02d", n), big))
		}
		require.NoError(t, b.FilesAppend(b.ctx, batch))
		b.snapshotted(t, fmt.Sprintf("im-%d", epoch))
	}
	for n := range batch.Changes {
		batch.Changes[n] = removed(1000+int64(n), batch.Changes[n].Path)
	}
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	kept := query[string](b.ctx, t, b.url, "SELECT count(*) FILTER (WHERE unsaved = '') || ' ' || count(*) FILTER (WHERE unsaved = 'session_full') FROM earlier_files")
	require.Equal(t, "64 16", kept)

	// Beyond 100,000 files, nothing is kept for the existing bundles, except the files that a fork
	// began with.
	last := b.snapshotted(t, "im-2")
	batch.Changes = []workspacefile.Change{written(2000, "f00", "1")}
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	next := b.snapshotted(t, "im-3")
	b.sql(t, "DELETE FROM earlier_files")
	for _, rows := range []string{"'n' || n, -1, -1 FROM generate_series(1, 1000) n", "'m' || n, 0, 9 FROM generate_series(1, 99000) n"} {
		b.sql(t, fmt.Sprintf(`INSERT INTO earlier_files (session_id, size, sha256, mode, modified_at, unsaved, path, from_epoch, until_epoch)
			SELECT '%s', 0, '', 0, now(), 'too_large', %s`, b.id, rows))
	}
	batch.Changes = []workspacefile.Change{written(2001, "f00", "2")}
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	for _, id := range []string{last.ID, next.ID} {
		_, _, err := b.BundleFileList(b.ctx, id, "", 10, "")
		requireCode(t, failure.NotSaved, err)
	}
	require.Equal(t, "1000", query[string](b.ctx, t, b.url, "SELECT count(*)::text FROM earlier_files"))
	require.Equal(t, []string{"f00 2"}, b.contents(t, b.snapshotted(t, "im-4").ID))
}

func TestRevertWithFilesHasThoseOfItsBundle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	batch := workspacefile.Batch{SessionID: b.id, Generation: 1, Lineage: "l1"}
	batch.Changes, batch.Diff = []workspacefile.Change{written(1, "a", "1"), written(2, "b", "1"), written(3, "c", "1")}, diffed("one")
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	one := b.snapshotted(t, "im-1")
	fork := b.fork(t, fork.Fork{BundleID: one.ID})
	b.turn(t, "two", session.OutcomeCompleted)
	batch.Changes, batch.Diff = []workspacefile.Change{written(4, "a", "22"), removed(5, "b"), written(6, "d", "2")}, diffed("two")
	require.NoError(t, b.FilesAppend(b.ctx, batch))
	two := b.snapshotted(t, "im-2")

	revert := func(b *harness, bundleID string, generation int64) {
		t.Helper()
		c := b.command(t, session.CommandRevertFiles, toBundle(bundleID)).Command
		b.snapshotted(t, "im-saved-"+b.id)
		b.restoring(t, generation)
		require.NoError(t, b.SessionRevertTo(b.ctx, b.id, generation, c.ID))
		require.Equal(t, []string{"a", "b", "c"}, b.paths(t, ""))
		require.Equal(t, []string{"a 1", "b 1", "c 1"}, b.contents(t, b.head(t)))
		f, err := b.FileGet(b.ctx, b.id, "a")
		require.NoError(t, err)
		require.Equal(t, "1", string(f.Data))
		d, err := b.DiffGet(b.ctx, b.id)
		require.NoError(t, err)
		require.Equal(t, "one", string(d.Patch))
		require.Equal(t, "3 3 one", query[string](b.ctx, t, b.url, fmt.Sprintf("SELECT files || ' ' || saved_bytes || ' ' || diff_key FROM workspaces WHERE session_id = '%s'", b.id)))
	}
	revert(b, one.ID, 2)
	require.Equal(t, []string{"a 22", "c 1", "d 2"}, b.contents(t, two.ID), "the undone conversation can be read")

	// The same for the bundle that a fork began with, whose files are stored with the parent.
	base := fork.head(t)
	fork.transit(t, session.EventWake, "")
	fork.reserve(t, 1)
	fork.transit(t, session.EventReady, "")
	fork.turn(t, "more", session.OutcomeCompleted)
	require.NoError(t, fork.FilesAppend(b.ctx, workspacefile.Batch{
		SessionID: fork.id, Generation: 1, Lineage: "l2", Changes: []workspacefile.Change{written(1, "a", "3"), written(2, "e", "3")}, Diff: diffed("fork"),
	}))
	revert(fork, base, 2)
}
