package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// tree is a workspace whose tree was taken.
type tree struct {
	root, dir string
	taken     manifest.Tree
}

func takenTree(t *testing.T) *tree {
	t.Helper()
	w := &tree{root: t.TempDir(), dir: t.TempDir()}
	w.write(t, "a.txt", "first")
	w.write(t, "src/b.go", "package b")
	w.write(t, ".git/config", "[core]")
	w.write(t, "node_modules/x/index.js", "x")
	w.write(t, "odd \n\xff name", "odd")
	require.NoError(t, os.Symlink("a.txt", filepath.Join(w.root, "link")))
	require.NoError(t, unix.Mkfifo(filepath.Join(w.root, "fifo"), 0o600))
	w.take(t)
	return w
}

func (w *tree) write(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(w.root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	// Old enough for the index of changes to trust the checksum.
	old := time.Now().Add(-time.Hour).Truncate(time.Millisecond).Add(123 * time.Microsecond)
	require.NoError(t, os.Chtimes(path, old, old))
}

func (w *tree) take(t *testing.T) {
	t.Helper()
	var err error
	w.taken, err = takeTree(t.Context(), w.root, w.dir)
	require.NoError(t, err)
	require.Empty(t, w.taken.Unchecked)
}

func (w *tree) compare(t *testing.T) manifest.TreeDifference {
	t.Helper()
	return CompareTree(t.Context(), w.root, w.dir, w.taken)
}

func TestTreeIsDeterministic(t *testing.T) {
	t.Parallel()
	w := takenTree(t)
	require.Zero(t, w.compare(t))
	require.EqualValues(t, 11, w.taken.Entries)
	before := w.taken
	w.take(t)
	require.Equal(t, before, w.taken)
}

func TestTreeReportsEveryDifference(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(t *testing.T, w *tree)
		want   string
	}{
		"overwritten":       {func(t *testing.T, w *tree) { w.write(t, "a.txt", "another size") }, "a.txt (changed)"},
		"removed":           {func(t *testing.T, w *tree) { require.NoError(t, os.Remove(filepath.Join(w.root, "src/b.go"))) }, "src/b.go"},
		"ignored directory": {func(t *testing.T, w *tree) { w.write(t, "node_modules/x/index.js", "yy") }, "node_modules/x/index.js (changed)"},
		"repository":        {func(t *testing.T, w *tree) { w.write(t, ".git/config", "[evil]!") }, ".git/config (changed)"},
		"added":             {func(t *testing.T, w *tree) { w.write(t, "src/new", "") }, "src/new (added)"},
		"permissions":       {func(t *testing.T, w *tree) { require.NoError(t, os.Chmod(filepath.Join(w.root, "a.txt"), 0o700)) }, "a.txt (changed)"},
		"name":              {func(t *testing.T, w *tree) { require.NoError(t, os.Remove(filepath.Join(w.root, "odd \n\xff name"))) }, "odd \n\uFFFD name"},
		"link": {func(t *testing.T, w *tree) {
			require.NoError(t, os.Remove(filepath.Join(w.root, "link")))
			require.NoError(t, os.Symlink("b.txt", filepath.Join(w.root, "link")))
		}, "link (changed)"},
		"type": {func(t *testing.T, w *tree) {
			require.NoError(t, os.Remove(filepath.Join(w.root, "fifo")))
			w.write(t, "fifo", "")
		}, "fifo (changed)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := takenTree(t)
			c.change(t, w)
			require.Equal(t, manifest.TreeDifference{Paths: []string{filepath.Join(w.root, "") + "/" + c.want}}, w.compare(t))
		})
	}
}

// TestOnlyTimeOfFileDiffers checks that the content decides, if it is known.
func TestOnlyTimeOfFileDiffers(t *testing.T) {
	t.Parallel()
	w := takenTree(t)
	file := filepath.Join(w.root, "a.txt")
	touch := func(at time.Time) { require.NoError(t, os.Chtimes(file, at, at)) }
	info, err := os.Stat(file)
	require.NoError(t, err)
	touch(info.ModTime().Truncate(time.Second))
	require.Zero(t, w.compare(t), "a snapshot may keep no fractions of seconds")
	touch(time.Now())
	require.Zero(t, w.compare(t), "touched alone")
	require.NoError(t, os.WriteFile(file, []byte("FIRST"), 0o600))
	require.Equal(t, []string{file + " (changed)"}, w.compare(t).Paths)

	// A file that is too large to be read gets no sum.
	large := filepath.Join(w.root, "large")
	require.NoError(t, os.WriteFile(large, nil, 0o600))
	require.NoError(t, os.Truncate(large, maxSummedBytes+1))
	w.take(t)
	require.Zero(t, w.compare(t))
	require.NoError(t, os.Chtimes(large, time.Time{}, time.Now().Add(time.Minute)))
	require.Equal(t, manifest.TreeDifference{Unchecked: []string{"workspace: content of 1 files whose modification time differs"}}, w.compare(t))
}

// TestTreeTakesSumsOfIndexOfChanges covers files that the tree would not read itself.
func TestTreeTakesSumsOfIndexOfChanges(t *testing.T) {
	t.Parallel()
	w := takenTree(t)
	large := filepath.Join(w.root, "large")
	require.NoError(t, os.WriteFile(large, nil, 0o600))
	require.NoError(t, os.Truncate(large, maxSummedBytes+1))
	i := Open(w.root, w.dir)
	i.Begin(workspacefile.Position{Session: "s"}, nil)
	_, err := i.Pass(true, nil)
	require.NoError(t, err)
	require.NoError(t, i.Report(func(workspacefile.Change) error { return nil }, func(int64) error { return nil }))
	for _, e := range i.s.Entries {
		e.Racy, i.unsaved = false, true // written a moment ago
	}
	require.NoError(t, i.Save())
	w.take(t)
	require.NoError(t, os.Chtimes(large, time.Time{}, time.Now().Add(time.Minute)))
	require.Zero(t, w.compare(t))
}

// TestTreeIsListedInOneOrder checks that each directory is followed by its entries, however many
// threads list it.
func TestTreeIsListedInOneOrder(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	want := []string{}
	for _, name := range []string{"a", "a/b", "a/b/f1", "a/b/f2", "a/c", "a/c/f3", "a/f4", "b", "b/d", "b/d/e", "b/d/e/f5", "b.txt"} {
		if strings.Contains(filepath.Base(name), "f") || strings.Contains(name, ".") {
			require.NoError(t, os.WriteFile(filepath.Join(root, name), nil, 0o600))
		} else {
			require.NoError(t, os.Mkdir(filepath.Join(root, name), 0o700))
		}
		want = append(want, name)
	}
	for range 20 {
		entries, err := listTree(t.Context(), root, len(want))
		require.NoError(t, err)
		got := []string{}
		for _, e := range entries {
			got = append(got, e.path)
		}
		require.Equal(t, want, got)
	}
}

// TestScanReadsDirectoriesInParallel reads one of two directories only once the other one is being read.
func TestScanReadsDirectoriesInParallel(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, name := range []string{"a", "b"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, name), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, name, "below"), nil, 0o600))
		require.NoError(t, os.Mkdir(filepath.Join(root, name, "d"), 0o700))
	}
	begun := map[string]chan struct{}{"a/d": make(chan struct{}), "b/d": make(chan struct{})}
	other := map[string]string{"a/d": "b/d", "b/d": "a/d"}
	s, err := NewScan(root, func(dir string) {
		rel, err := filepath.Rel(root, dir)
		if err != nil || begun[rel] == nil {
			return
		}
		close(begun[rel])
		select {
		case <-begun[other[rel]]:
		case <-time.After(10 * time.Second):
			t.Error("the directories are read one after the other")
		}
	})
	require.NoError(t, err)
	var found []string
	s.found.each(func(path string, _ stat) { found = append(found, path) })
	require.Equal(t, []string{"a/below", "b/below"}, found)
	require.Equal(t, List(t.Context(), root).Digest(), s.Digest())
}

// TestListingOfPassEqualsTree checks that a pass over the tracked files lists everything else as well, as a separate listing does.
func TestListingOfPassEqualsTree(t *testing.T) {
	t.Parallel()
	w := takenTree(t)
	w.write(t, ".gitignore", "/ignored/\n*.log\n")
	w.write(t, "ignored/deep/file", "x")
	w.write(t, "src/a.log", "x")
	w.write(t, "src/node_modules/y/index.js", "y")
	w.write(t, "src/sub/.git/config", "x")
	w.write(t, strings.Repeat(strings.Repeat("p", 200)+"/", 6)+"long", "its path is too long to be tracked")
	w.write(t, strings.Repeat("d/", maxDepth+10)+"file", "too deep to be tracked")
	check := func(limit int) {
		t.Helper()
		i := Open(w.root, t.TempDir())
		i.limit = limit
		got, _, err := i.List(true, nil)
		require.NoError(t, err)
		want, err := listTree(t.Context(), w.root, maxTreeEntries)
		require.NoError(t, err)
		require.NoError(t, got.err)
		require.Equal(t, want, got.entries)
		other := Open(w.root, t.TempDir())
		other.limit = limit
		_, err = other.Pass(true, nil)
		require.NoError(t, err)
		require.Equal(t, other.todo, i.todo, "what is tracked does not depend on the listing")
		require.Equal(t, digestOf(want), got.Digest())
	}
	check(workspacefile.MaxWatched)
	check(2)

	require.NoError(t, os.MkdirAll(filepath.Join(w.root, strings.Repeat("d/", maxTreeDepth+2)), 0o755))
	got, _, err := Open(w.root, t.TempDir()).List(true, nil)
	require.NoError(t, err)
	require.Empty(t, got.Digest())
	tree, err := got.Take(t.Context(), t.TempDir())
	require.NoError(t, err)
	require.Equal(t, "deeper than 400 directories", tree.Unchecked)
}

// TestTreeHasChecksumOfFileThatKeepsSizeAndTime changes the content of a file that keeps its size
// and time. The digest of the tree stays the same, but its index gets the new checksum.
func TestTreeHasChecksumOfFileThatKeepsSizeAndTime(t *testing.T) {
	t.Parallel()
	w := takenTree(t)
	i := Open(w.root, w.dir)
	seal := func() {
		t.Helper()
		l, _, err := i.List(true, nil)
		require.NoError(t, err)
		require.NoError(t, i.Report(func(workspacefile.Change) error { return nil }, func(int64) error { return nil }))
		require.NoError(t, i.Save())
		w.taken, err = l.Take(t.Context(), w.dir)
		require.NoError(t, err)
	}
	i.Begin(workspacefile.Position{Session: "ses_1"}, nil)
	seal()
	before := w.taken
	info, err := os.Lstat(filepath.Join(w.root, "a.txt"))
	require.NoError(t, err)
	w.write(t, "a.txt", "other")
	require.NoError(t, os.Chtimes(filepath.Join(w.root, "a.txt"), info.ModTime(), info.ModTime()))
	seal()
	require.Equal(t, before.Digest, w.taken.Digest)
	require.NotEqual(t, before.Index, w.taken.Index, "its checksum is another one")

	// A provider that loses times: the content decides.
	require.NoError(t, os.Chtimes(filepath.Join(w.root, "a.txt"), time.Now(), time.Now()))
	require.Zero(t, w.compare(t))
}

func TestTreeBeyondItsBoundsIsUnchecked(t *testing.T) {
	t.Parallel()
	w := takenTree(t)
	large, err := list(t.Context(), w.root, 5).Take(t.Context(), w.dir)
	require.NoError(t, err)
	require.Equal(t, manifest.Tree{Unchecked: "more than 5 files and directories"}, large)
	want := []string{"workspace: more than 5 files and directories"}
	require.Equal(t, want, CompareTree(t.Context(), w.root, w.dir, large).Unchecked)
	require.Equal(t, want, compareTree(t.Context(), w.root, w.dir, w.taken, 5).Unchecked)

	deep := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(deep, strings.Repeat("d/", maxTreeDepth+2)), 0o755))
	got, err := takeTree(t.Context(), deep, w.dir)
	require.NoError(t, err)
	require.Equal(t, "deeper than 400 directories", got.Unchecked)
}

func TestTreeNamesNoMoreThanSomeDifferences(t *testing.T) {
	t.Parallel()
	w := takenTree(t)
	for n := range 60 {
		w.write(t, fmt.Sprintf("new/%02d", n), "")
	}
	got := w.compare(t)
	require.Len(t, got.Paths, maxDifferences)
	require.Equal(t, 61-maxDifferences, got.More)

	w = takenTree(t)
	w.write(t, strings.Repeat("long/", 100)+"name", "")
	for _, p := range w.compare(t).Paths {
		require.LessOrEqual(t, len(p), maxShownPath+len("…")+len(" (added)"))
		require.True(t, strings.HasPrefix(p, w.root[:maxShownPath/8]), p)
	}
}

// TestForeignIndexIsIgnored covers an index of another tree, because the index is
// on the same disk as the files.
func TestForeignIndexIsIgnored(t *testing.T) {
	t.Parallel()
	w := takenTree(t)
	taken := w.taken
	w.write(t, "a.txt", "another size")
	w.take(t)
	w.taken = taken
	require.Equal(t, []string{w.root + " (differs; its index cannot be read)"}, w.compare(t).Paths)
	require.NoError(t, os.Remove(treeFile(w.dir)))
	require.Equal(t, []string{w.root + " (differs; its index cannot be read)"}, w.compare(t).Paths)
}

func BenchmarkTree(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		root, dir := b.TempDir(), b.TempDir()
		for i := range n {
			path := filepath.Join(root, fmt.Sprintf("d%03d", i/100), fmt.Sprintf("file-%06d.txt", i))
			if i%100 == 0 {
				require.NoError(b, os.MkdirAll(filepath.Dir(path), 0o755))
			}
			require.NoError(b, os.WriteFile(path, nil, 0o600))
		}
		var taken manifest.Tree
		b.Run(fmt.Sprintf("take/%d", n), func(b *testing.B) {
			for b.Loop() {
				var err error
				taken, err = takeTree(b.Context(), root, dir)
				require.NoError(b, err)
			}
		})
		b.Run(fmt.Sprintf("compare/%d", n), func(b *testing.B) {
			for b.Loop() {
				require.Zero(b, CompareTree(b.Context(), root, dir, taken))
			}
		})
	}
}

// TestIndexOfUnchangedWorkspaceStays checks that an index is not written again, because most of the
// time of a seal of 10,000 files is spent on that.
func TestIndexOfUnchangedWorkspaceStays(t *testing.T) {
	t.Parallel()
	w := takenTree(t)
	old := time.Now().Add(-time.Hour)
	age := func() { require.NoError(t, os.Chtimes(treeFile(w.dir), old, old)) }
	written := func() bool { // since age; a new file may have the inode of a removed one
		info, err := os.Lstat(treeFile(w.dir))
		require.NoError(t, err)
		return info.ModTime().After(old.Add(time.Minute))
	}
	first := w.taken
	age()
	w.take(t)
	require.Equal(t, first, w.taken)
	require.False(t, written(), "it was written again")

	w.write(t, "a.txt", "another size")
	w.take(t)
	require.NotEqual(t, first.Digest, w.taken.Digest)
	require.True(t, written())
	require.Zero(t, w.compare(t))
	w.write(t, "a.txt", "third")
	require.Equal(t, []string{filepath.Join(w.root, "a.txt") + " (changed)"}, w.compare(t).Paths, "the index is of the tree that was taken last")

	for what, lose := range map[string]func() error{
		"the index was removed": func() error { return os.Remove(treeFile(w.dir)) },
		"the note was removed":  func() error { return os.Remove(treeNote(w.dir)) },
		"the note is damaged":   func() error { return os.WriteFile(treeNote(w.dir), []byte(`{"digest":`), 0o600) },
	} {
		w.take(t)
		age()
		require.NoError(t, lose(), what)
		w.take(t)
		require.True(t, written(), what)
		require.Zero(t, w.compare(t), what)
	}
}
