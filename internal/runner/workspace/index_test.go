package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// bundle is a workspace with an index, and a worker that stores the reports.
type bundle struct {
	t     *testing.T
	root  string
	dir   string
	index *Index
	seen  []workspacefile.Change // reports of the last look
	p     workspacefile.Position
	files map[string]workspacefile.Content
	fail  error // error of every send
	notes int
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{
		t: t, root: t.TempDir(), dir: filepath.Join(t.TempDir(), "state"),
		p: workspacefile.Position{Session: "ses_1"}, files: map[string]workspacefile.Content{},
	}
	b.index = Open(b.root, b.dir)
	return b
}

// attach attaches a worker with its stored position.
func (b *bundle) attach() {
	b.t.Helper()
	if b.index.Continues(b.p) {
		b.index.Resume(b.p)
		return
	}
	var known []workspacefile.Known
	for _, f := range b.files {
		known = append(known, workspacefile.Known{Path: f.Path, Size: f.Size, SHA256: f.SHA256, Mode: f.Mode, Unsaved: f.Unsaved})
	}
	b.index.Begin(b.p, known)
}

func (b *bundle) send(c workspacefile.Change) error {
	if b.fail != nil {
		return b.fail
	}
	b.seen = append(b.seen, c)
	return nil
}

// look makes a pass, and returns the reports as "CHANGE PATH".
func (b *bundle) look() []string {
	b.t.Helper()
	b.seen = nil
	_, err := b.index.Pass(true, nil)
	require.NoError(b.t, err)
	err = b.index.Report(b.send, func(int64) error { b.notes++; return b.fail })
	require.ErrorIs(b.t, err, b.fail)
	var out []string
	for _, c := range b.seen {
		word := string(c.Kind)
		if c.Initial {
			word = "initial"
		}
		out = append(out, word+" "+c.Path)
	}
	slices.Sort(out)
	return out
}

// store makes the worker store the reports.
func (b *bundle) store() {
	b.p.Lineage, b.p.Base = b.index.Lineage(), b.index.Base()
	for _, c := range b.seen {
		b.p.Seq = c.Seq
		if c.Kind == workspacefile.Deleted {
			delete(b.files, c.Path)
		} else {
			b.files[c.Path] = c.Content
		}
	}
}

func (b *bundle) sync() []string {
	b.t.Helper()
	out := b.look()
	b.store()
	return out
}

func (b *bundle) write(name, text string) {
	b.t.Helper()
	path := filepath.Join(b.root, name)
	require.NoError(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(b.t, os.WriteFile(path, []byte(text), 0o644))
}

func (b *bundle) remove(name string) {
	b.t.Helper()
	require.NoError(b.t, os.RemoveAll(filepath.Join(b.root, name)))
}

func TestReportsChangesSinceStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.write("there", "1")
	b.attach()
	_, err := b.index.Pass(true, nil)
	require.NoError(t, err)
	b.write("dir/new", "2")
	require.Equal(t, []string{"created dir/new", "initial there"}, b.sync())
	require.Equal(t, "2", string(b.files["dir/new"].Data))
	require.Empty(t, b.sync(), "nothing has happened")

	b.write("there", "changed")
	b.remove("dir")
	b.write("fleeting", "x")
	b.remove("fleeting")
	require.Equal(t, []string{"deleted dir/new", "modified there"}, b.sync())
	b.write("dir/new", "again")
	require.Equal(t, []string{"created dir/new"}, b.sync())

	b.write("there", "changed") // the same bytes
	require.NoError(t, os.Chtimes(filepath.Join(b.root, "there"), time.Now(), time.Now()))
	require.Empty(t, b.sync(), "to touch is not to change")
	require.NoError(t, os.Chmod(filepath.Join(b.root, "there"), 0o755))
	require.Equal(t, []string{"modified there"}, b.sync())
	require.EqualValues(t, 0o755, b.files["there"].Mode)

	require.NoError(t, os.Rename(filepath.Join(b.root, "dir"), filepath.Join(b.root, "moved")))
	require.Equal(t, []string{"created moved/new", "deleted dir/new"}, b.sync())
	b.remove("there")
	require.NoError(t, os.Mkdir(filepath.Join(b.root, "there"), 0o755))
	require.Equal(t, []string{"deleted there"}, b.sync(), "a directory is not a file")
}

func TestWriteWithinClocksTickIsFound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attach()
	for n := range 200 {
		text := fmt.Sprintf("%03d", n)
		b.write("same-size", text)
		b.sync()
		require.Equal(t, text, string(b.files["same-size"].Data))
	}
}

func TestUnstoredChangesAreReportedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.write("initial", "i")
	b.attach()
	b.look() // the worker dies before it has stored the reports
	b.attach()
	require.Equal(t, []string{"initial initial"}, b.sync())
	b.write("a", "1")
	b.write("b", "1")
	b.sync()

	b.write("a", "2")
	b.write("c", "2")
	b.remove("b")
	b.look() // lost
	b.write("c", "3")
	b.attach()
	require.Equal(t, []string{"deleted b", "modified a", "modified c"}, b.sync())
	require.Equal(t, "3", string(b.files["c"].Data))
	b.attach()
	require.Empty(t, b.sync())
}

func TestFailedSendLosesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attach()
	b.sync()
	b.write("a", "1")
	b.write("b", "1")
	b.fail = errors.New("the link was removed")
	require.Empty(t, b.look())
	b.fail = nil
	b.attach()
	require.Equal(t, []string{"created a", "created b"}, b.sync())
}

func TestRestoredDiskContinues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.write("a", "1")
	b.attach()
	b.sync()
	require.NoError(t, b.index.Save())
	lineage := b.p.Lineage

	b.index = Open(b.root, b.dir) // restored from the snapshot
	b.write("b", "1")
	b.attach()
	require.Equal(t, []string{"created b"}, b.sync())
	require.Equal(t, lineage, b.p.Lineage)
	require.NoError(t, b.index.Save())
	older, err := os.ReadFile(savedFile(b.dir))
	require.NoError(t, err)

	// A disk that is older than the stored position: the worker lists its files.
	b.write("b", "2")
	b.write("c", "2")
	b.sync()
	require.NoError(t, os.WriteFile(savedFile(b.dir), older, 0o600))
	b.write("b", "1")
	b.remove("c")
	b.index = Open(b.root, b.dir)
	require.False(t, b.index.Continues(b.p))
	b.attach()
	require.Equal(t, []string{"deleted c", "modified b"}, b.sync())
	require.NotEqual(t, lineage, b.p.Lineage)
	require.Equal(t, "1", string(b.files["b"].Data))

	// An empty disk.
	b.remove("a")
	b.remove("b")
	b.index = Open(b.root, t.TempDir())
	b.attach()
	require.Equal(t, []string{"deleted a", "deleted b"}, b.sync())

	// The disk of another session starts from scratch.
	b.write("a", "1")
	b.p, b.files = workspacefile.Position{Session: "ses_2"}, map[string]workspacefile.Content{}
	b.attach()
	require.Equal(t, []string{"initial a"}, b.sync())
}

// TestFilesOfRestoredDiskAreNotReadAgain gives each file another inode and another time of change,
// as a restore does.
func TestFilesOfRestoredDiskAreNotReadAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := time.Now().Add(-time.Hour)
	put := func(name, text string, at time.Time) {
		b.remove(name)
		b.write(name, text)
		require.NoError(t, os.Chtimes(filepath.Join(b.root, name), at, at))
	}
	for _, name := range []string{"same", "later", "longer", "gone"} {
		put(name, "1", old)
	}
	b.attach()
	b.sync()
	for path, e := range b.index.s.Entries {
		e.Racy = path == "racy" // they were written just before they were read
	}
	require.NoError(t, b.index.Save())

	put("same", "1", old)
	put("later", "2", old.Add(time.Second))
	put("longer", "22", old)
	b.remove("gone")
	b.write("new", "1")
	b.index = Open(b.root, b.dir)
	scan, err := NewScan(b.root, nil)
	require.NoError(t, err)
	require.True(t, b.index.Prepare(scan))
	require.Equal(t, List(t.Context(), b.root).Digest(), scan.Digest())
	require.Equal(t, []string{"gone", "later", "longer", "new"}, b.index.todo)
	require.True(t, b.index.Current(b.p))

	require.False(t, b.index.unsaved, "the next disk is another one again")

	put("same", "1", old)
	b.attach()
	_, err = b.index.Pass(true, nil)
	require.NoError(t, err)
	require.Contains(t, b.index.todo, "same", "on the same disk, another inode is another file")
	require.Equal(t, 2, b.index.Passes())
}

func TestContentHasBounds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attach()
	b.sync()
	b.write("max", strings.Repeat("x", workspacefile.MaxBytes))
	b.write("over", strings.Repeat("x", workspacefile.MaxBytes+1))
	b.write("empty", "")
	b.sync()
	require.Len(t, b.files["max"].Data, workspacefile.MaxBytes)
	require.Equal(t, workspacefile.UnsavedTooLarge, b.files["over"].Unsaved)
	require.Nil(t, b.files["over"].Data)
	require.Len(t, b.files["over"].SHA256, 64, "it is read to be compared")
	require.NotNil(t, b.files["empty"].Data)

	// 64 MiB of content in total, including an existing file.
	for n := range 64 {
		b.write(fmt.Sprintf("file%02d", n), strings.Repeat("y", workspacefile.MaxBytes))
	}
	b.sync()
	require.Equal(t, workspacefile.UnsavedFull, b.files["file63"].Unsaved)
	require.True(t, b.files["file62"].Saved())
	b.remove("file00")
	b.sync()
	b.write("file63", "small")
	b.sync()
	require.True(t, b.files["file63"].Saved(), "deleted files make room")
}

func TestFullWorkspaceIsReportedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.index.limit = 5
	b.attach()
	b.sync()
	for n := range 5 {
		b.write(fmt.Sprintf("m%d", n), "1")
	}
	require.Len(t, b.sync(), 5)
	require.Zero(t, b.notes)
	b.write("a", "pushes in before the others")
	require.Empty(t, b.sync())
	require.Equal(t, 1, b.notes)
	b.write("m4", "2")
	require.Equal(t, []string{"modified m4"}, b.sync(), "those that are watched stay watched")
	require.Equal(t, 1, b.notes)
	b.remove("m0")
	require.Equal(t, []string{"created a", "deleted m0"}, b.sync(), "there is room again")
}

func TestOnlyRegularFilesAreReported(t *testing.T) {
	t.Parallel()
	b := setup(t)
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600))
	b.attach()
	b.sync()
	in := func(name string) string { return filepath.Join(b.root, name) }
	require.NoError(t, os.Symlink(filepath.Join(outside, "secret"), in("file-link")))
	require.NoError(t, os.Symlink(outside, in("dir-link")))
	require.NoError(t, unix.Mkfifo(in("fifo"), 0o644))
	require.NoError(t, os.WriteFile(in("not\xffutf8"), nil, 0o600))
	b.write("node_modules/x", "1")
	b.write("deep/node_modules/x", "1")
	b.write(".overwinter/attachments/prm_1/shot.png", "1")
	b.write("real", "1")
	require.Equal(t, []string{"created real"}, b.sync())

	// A file that is replaced by a link between look and read.
	b.write("dir/a", "1")
	_, err := b.index.Pass(true, nil)
	require.NoError(t, err)
	b.remove("dir")
	require.NoError(t, os.Symlink(outside, in("dir")))
	require.NoError(t, os.WriteFile(filepath.Join(outside, "a"), []byte("not yours"), 0o600))
	b.seen = nil
	require.NoError(t, b.index.Report(b.send, nil))
	require.Empty(t, b.seen)
}

func TestIgnoreFilesApplyOnlyInRepositories(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attach()
	b.sync()
	b.write(".gitignore", "*.log\n")
	b.write("a.log", "1")
	b.write("lib/.git/HEAD", "ref: refs/heads/main\n")
	b.write("lib/.gitignore", "out/\n!out/kept\n")
	b.write("lib/out/x", "1")
	b.write("lib/b.log", "1")
	b.write("lib/.git/info/exclude", "private\n")
	b.write("lib/private", "1")
	b.write("lib/sub/.gitignore", "*\n!.gitignore\n")
	b.write("lib/sub/x", "1")
	require.Equal(t, []string{
		"created .gitignore", "created a.log", "created lib/.gitignore", "created lib/b.log", "created lib/sub/.gitignore",
	}, b.sync())
	b.write(".git/HEAD", "ref: refs/heads/main\n")
	require.Equal(t, []string{"deleted a.log", "deleted lib/b.log"}, b.sync(), "ignored files are no longer reported")
}

func TestConstantlyChangingFileIsDeferred(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attach()
	b.sync()
	b.write("log", "1")
	b.sync()
	b.write("log", "12")
	found, err := b.index.Pass(false, nil)
	require.NoError(t, err)
	require.False(t, found)
	require.True(t, b.index.Held())
	b.write("other", "1")
	found, err = b.index.Pass(false, nil)
	require.NoError(t, err)
	require.True(t, found, "others are not held back")
	require.Equal(t, []string{"created other", "modified log"}, b.sync(), "a flush holds nothing back")
}

func TestWatcherWakesForChangesInSubdirectories(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.write("dir/a", "1")
	b.attach()
	w, err := NewWatcher()
	require.NoError(t, err)
	defer w.Close()
	pass := func() {
		w.Rearm()
		_, err := b.index.Pass(true, w.Add)
		require.NoError(t, err)
		require.False(t, w.Broken())
	}
	woken := func(what string, do func()) {
		t.Helper()
		do()
		select {
		case <-w.Wake():
		case <-time.After(2 * time.Minute):
			t.Fatal("no wait ended: " + what)
		}
		pass()
		for { // events received between the wake-up and the pass
			select {
			case <-w.Wake():
				pass()
				continue
			case <-time.After(50 * time.Millisecond):
			}
			break
		}
	}
	pass()
	woken("write", func() { b.write("dir/a", "2") })
	woken("create", func() { b.write("new", "1") })
	woken("new directory", func() { require.NoError(t, os.Mkdir(filepath.Join(b.root, "dir", "deep"), 0o755)) })
	woken("write in it", func() { b.write("dir/deep/x", "1") })
	woken("chmod", func() { require.NoError(t, os.Chmod(filepath.Join(b.root, "new"), 0o755)) })
	woken("rename", func() { require.NoError(t, os.Rename(filepath.Join(b.root, "dir"), filepath.Join(b.root, "moved"))) })
	woken("write in what was renamed", func() { b.write("moved/deep/x", "2") })
	woken("remove", func() { b.remove("moved") })
}

func BenchmarkPassOverALargeWorkspace(b *testing.B) {
	root := b.TempDir()
	for n := range 10_000 {
		dir := filepath.Join(root, fmt.Sprintf("d%03d", n/100))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%03d", n)), []byte("x"), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	i := Open(root, b.TempDir())
	i.Begin(workspacefile.Position{Session: "ses_1"}, nil)
	_, err := i.Pass(true, nil)
	if err == nil {
		err = i.Report(func(workspacefile.Change) error { return nil }, nil)
	}
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := i.Pass(true, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// TestFileFoundTwiceCountsOnce checks this because a file that is renamed during a walk may be found in
// both places, or twice in a directory that is read.
func TestFileFoundTwiceCountsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.write("known", "1")
	b.attach()
	b.sync()
	found := func(names ...string) *Scan {
		w := &walker{limit: 10}
		for _, name := range names {
			info, ok := b.index.lookAt(name)
			require.True(t, ok)
			w.content.tracked = append(w.content.tracked, tracked{path: name, stat: info})
		}
		return &Scan{found: w}
	}
	b.write("known", "22")
	b.write("new", "3")
	_, err := b.index.pass(true, found("known", "new", "known", "new"))
	require.NoError(t, err)
	require.Equal(t, []string{"known", "new"}, b.index.todo)
	b.index.limit = 2
	_, err = b.index.pass(true, found("known", "known", "new"))
	require.NoError(t, err)
	require.Zero(t, b.index.s.Bounded)
}

// TestOrderOfReadersChangesNoTrackedFile checks that a pass tracks the files that come first in the order of
// their names, although a reader of a later directory has found others first.
func TestOrderOfReadersChangesNoTrackedFile(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, name := range []string{"a/dir/", "a/x1", "a/x2", "b/1", "b/2", "b/dir/"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o700))
		if filepath.Base(name) != "dir" {
			require.NoError(t, os.WriteFile(filepath.Join(root, name), nil, 0o600))
		}
	}
	for name, pass := range map[string]func(*Index, func(string)) error{
		"tracked files": func(i *Index, dir func(string)) error { _, err := i.Pass(true, dir); return err },
		"everything":    func(i *Index, dir func(string)) error { _, _, err := i.List(true, dir); return err },
	} {
		i := Open(root, t.TempDir())
		i.limit = 3
		i.Begin(workspacefile.Position{Session: "ses_1"}, nil)
		found := make(chan struct{})
		foundAll := sync.OnceFunc(func() { close(found) })
		require.NoError(t, pass(i, func(dir string) {
			switch dir {
			case filepath.Join(root, "a/dir"): // before the files of a
				select {
				case <-found:
				case <-time.After(10 * time.Second):
					t.Error("there is one reader only")
				}
			case filepath.Join(root, "b/dir"): // after the files of b
				foundAll()
			}
		}), name)
		require.Equal(t, []string{"a/x1", "a/x2", "b/1"}, i.todo, name)
		require.EqualValues(t, -1, i.s.Bounded, name)
	}
}

// TestScanOfMissingWorkspaceHasDigest checks that a workspace that was removed is not one that could not be
// listed.
func TestScanOfMissingWorkspaceHasDigest(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "missing")
	want := List(t.Context(), root).Digest()
	require.NotEmpty(t, want)
	s, err := NewScan(root, nil)
	require.NoError(t, err)
	require.Equal(t, want, s.Digest())
	all, _, err := Open(root, t.TempDir()).List(true, nil)
	require.NoError(t, err)
	require.Equal(t, want, all.Digest())
}

// TestGatheringEndsOnce checks this because a workspace may be removed after it was listed.
func TestGatheringEndsOnce(t *testing.T) {
	t.Parallel()
	all := newGathering()
	all.found(&directory{entries: []treeEntry{{path: "a"}}})
	all.found(&directory{})
	require.Equal(t, []treeEntry{{path: "a"}}, all.listing("", nil).entries)
}
