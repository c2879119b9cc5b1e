package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// shelf is a workspace as stored by a worker.
type shelf struct {
	position workspacefile.Position
	files    map[string]workspacefile.Content
	reported []string // "CHANGE PATH"
	diff     *workspacefile.Diff
}

func newShelf() *shelf {
	return &shelf{position: workspacefile.Position{Session: "ses_1"}, files: map[string]workspacefile.Content{}}
}

func (s *shelf) known() []workspacefile.Known {
	var list []workspacefile.Known
	for _, f := range s.files {
		list = append(list, workspacefile.Known{Path: f.Path, Size: f.Size, SHA256: f.SHA256, Mode: f.Mode, Unsaved: f.Unsaved})
	}
	return list
}

func (s *shelf) add(t *testing.T, m runner.Message) {
	t.Helper()
	switch m := m.(type) {
	case *runner.FilesBegun:
		s.position.Lineage, s.position.Base = m.Lineage, m.Base
	case *runner.FileChanged:
		s.position.Seq = m.Seq
		// Like the database: a file that was reported and not stored counts as created when it is
		// reported again.
		word := string(m.Kind)
		if _, there := s.files[m.Path]; m.Kind != workspacefile.Deleted {
			word = string(workspacefile.Created)
			if there {
				word = string(workspacefile.Modified)
			}
		}
		if m.Initial {
			word = "initial"
		}
		s.reported = append(s.reported, word+" "+m.Path)
		if m.Kind == workspacefile.Deleted {
			delete(s.files, m.Path)
			return
		}
		if m.Saved() {
			require.Equal(t, hashOf(string(m.Data)), m.SHA256)
		}
		s.files[m.Path] = m.Content
	case *runner.FilesBounded:
		s.position.Seq = m.Seq
	case *runner.Diff:
		s.diff, s.position.DiffKey = &m.Diff, m.Key
	case *runner.Survey:
		t.Error("a survey is between serve and attach")
	}
}

// take returns the sorted reports since the last call.
func (s *shelf) take() []string {
	reported := s.reported
	s.reported = nil
	slices.Sort(reported)
	return reported
}

// watching returns a link that reports changes of the workspace.
func (b *sandbox) watching(run string, s *shelf) *worker {
	b.t.Helper()
	position := s.position
	w := b.attach(runner.Hello{Run: run, Files: &position})
	if w.Welcome().ListFiles {
		require.NoError(b.t, w.ListFiles(s.known()))
	}
	require.NoError(b.t, w.Start(runner.Start{Launch: b.shell(echo), Input: []byte("go\n")}))
	w.delivery(runner.Delivered)
	return w
}

// shelve flushes and stores all workspace reports that the link has sent.
func (w *worker) shelve(s *shelf, id int64) {
	w.t.Helper()
	require.NoError(w.t, w.Flush(id))
	w.until(func(m runner.Message) bool { f, ok := m.(*runner.Flushed); return ok && f.ID == id })
	for _, m := range w.seen[w.stored:] {
		s.add(w.t, m)
	}
	w.stored = len(w.seen)
}

// work renames a file into the workspace, so that it is never seen incomplete.
func (b *sandbox) work(name, text string) {
	b.t.Helper()
	path, part := filepath.Join(b.paths.Workspace, name), b.paths.Workspace+".part"
	require.NoError(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(b.t, os.WriteFile(part, []byte(text), 0o644))
	require.NoError(b.t, os.Rename(part, path))
}

func changed(path string) func(runner.Message) bool {
	return func(m runner.Message) bool {
		f, ok := m.(*runner.FileChanged)
		return ok && f.Path == path
	}
}

func TestReportsWorkspaceWhileAgentWorks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work("there", "first\n")
	s := newShelf()
	require.Empty(t, b.ping().Watch)
	w := b.watching("run_1", s)
	b.work("a", "1")
	m := w.until(changed("a")).(*runner.FileChanged)
	require.Equal(t, workspacefile.Created, m.Kind, "it was not requested")
	require.Equal(t, "1", string(m.Data))
	require.Equal(t, runner.WatchInotify, b.ping().Watch)
	b.work("deep/er/b", "2")
	w.until(changed("deep/er/b"))
	b.work("deep/er/c", "3")
	w.until(changed("deep/er/c"))
	require.NoError(t, os.Remove(filepath.Join(b.paths.Workspace, "a")))
	w.shelve(s, 1)
	require.Equal(t, []string{"created a", "created deep/er/b", "created deep/er/c", "deleted a", "initial there"}, s.take())
	require.Equal(t, 2, s.diff.FilesChanged)
	require.Contains(t, string(s.diff.Patch), "+++ b/deep/er/b")

	before := s.diff
	w.shelve(s, 2)
	require.Empty(t, s.take(), "nothing has happened")
	require.Same(t, before, s.diff, "nor is there another diff")
}

func TestSuccessorOfDeadWorkerReportsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work("there", "1")
	s := newShelf()
	w := b.watching("run_1", s)
	b.work("a", "1")
	w.until(changed("a")) // the change was not stored

	next := b.watching("run_1", s)
	w.displaced()
	next.shelve(s, 1)
	require.Equal(t, []string{"created a", "initial there"}, s.take())
	b.work("a", "2")
	b.work("lost", "1")
	require.NoError(t, next.Flush(2))
	next.until(func(m runner.Message) bool { f, ok := m.(*runner.Flushed); return ok && f.ID == 2 })

	last := b.watching("run_1", s)
	require.False(t, last.Welcome().ListFiles)
	last.shelve(s, 3)
	require.Equal(t, []string{"created lost", "modified a"}, s.take())
	require.NotNil(t, s.diff)
	lost := b.watching("run_2", s)
	lost.shelve(s, 4)
	require.Empty(t, s.take())
}

func TestSealHandsOverWorkspace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := newShelf()
	w := b.watching("run_1", s)
	b.work("a", "1")
	w.shelve(s, 1)
	require.NoError(t, w.Close())
	s.take()
	b.work("late", "2")
	sealed := func(b *sandbox, r runner.SealRequest) runner.Seal {
		r.Token = b.token
		got, err := runner.ReadSeal(bytes.NewReader(b.ok(b.paths.Seal(r))), func(m runner.Message) error { s.add(t, m); return nil })
		require.NoError(t, err)
		return got
	}
	seal := func() {
		position := s.position
		require.True(t, sealed(b, runner.SealRequest{FilesFrom: &position}).Files)
	}
	before := s.position
	seal()
	require.Equal(t, []string{"created late"}, s.take())
	require.Equal(t, 2, s.diff.FilesChanged)
	diff := s.diff
	seal()
	require.Empty(t, s.take(), "sealing again hands nothing over")
	require.Same(t, diff, s.diff)
	s.position = before // the answer to the seal was lost
	delete(s.files, "late")
	seal()
	require.Equal(t, []string{"created late"}, s.take())

	// A snapshot taken now continues from the stored position.
	b.stop(9)
	b.start()
	w = b.watching("run_2", s)
	require.False(t, w.Welcome().ListFiles)
	w.shelve(s, 1)
	require.Empty(t, s.take())

	// In a fresh sandbox the worker lists what it has stored.
	fresh := setup(t)
	fresh.work("a", "1")
	position := s.position
	require.False(t, sealed(fresh, runner.SealRequest{FilesFrom: &position}).Files, "the list is needed")
	require.Empty(t, s.take())
	listed := *s
	require.True(t, sealed(fresh, runner.SealRequest{Files: &position, KnownFiles: s.known()}).Files)
	require.Equal(t, []string{"deleted late"}, s.take())
	*s = listed // the answer was lost with the sandbox
	fresh = setup(t)
	fresh.work("a", "1")
	s.files["late"] = workspacefile.Content{Info: workspacefile.Info{Path: "late"}}
	w = fresh.watching("run_3", s)
	require.True(t, w.Welcome().ListFiles)
	w.shelve(s, 1)
	require.Equal(t, []string{"deleted late"}, s.take())
}

func TestRepositoryIsComparedByAttach(t *testing.T) {
	t.Parallel()
	b := setup(t)
	gitIn(t, b.paths.Workspace, "init", "-q", "-b", "main")
	b.work("a", "1\n")
	gitIn(t, b.paths.Workspace, "add", ".")
	gitIn(t, b.paths.Workspace, "commit", "-q", "-m", "first")
	s := newShelf()
	w := b.watching("run_1", s)
	w.shelve(s, 1)
	require.Equal(t, gitIn(t, b.paths.Workspace, "rev-parse", "HEAD"), s.position.Base)
	require.Equal(t, "main", s.diff.Git.Branch)
	require.False(t, s.diff.Git.Dirty)
	b.work("a", "1\n2\n")
	w.shelve(s, 2)
	require.EqualValues(t, 1, s.diff.Additions)
	require.True(t, s.diff.Git.Dirty)
	gitIn(t, b.paths.Workspace, "commit", "-q", "-am", "second")
	w.shelve(s, 3)
	require.EqualValues(t, 1, s.diff.Additions)
	require.False(t, s.diff.Git.Dirty, "a commit changes no file")
}

// TestBurstCostsLittle writes an endless log and many files at the same time.
func TestBurstCostsLittle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := newShelf()
	w := b.watching("run_1", s)
	log, err := os.Create(filepath.Join(b.paths.Workspace, "log"))
	require.NoError(t, err)
	for n := range 2000 {
		_, err := fmt.Fprintln(log, strings.Repeat("x", 100))
		require.NoError(t, err)
		if n%10 == 0 {
			b.work(fmt.Sprintf("d%d/f%d", n%7, n), "1")
		}
	}
	require.NoError(t, log.Close())
	w.shelve(s, 1)
	require.Len(t, s.files, 201)
	require.Len(t, s.files["log"].Data, 2000*101)
	reported := s.take()
	count := 0
	for _, one := range reported {
		if strings.HasSuffix(one, " log") {
			count++
		}
	}
	require.Less(t, count, 200, "a file that grows is not reported at every line")
}

func TestLinkWithoutFilesRequestGetsNoFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", echo, "go\n")
	w.line("got go")
	b.work("a", "1")
	require.NoError(t, w.Flush(1))
	require.Equal(t, &runner.Flushed{ID: 1}, w.until(func(m runner.Message) bool { _, ok := m.(*runner.Flushed); return ok }))
	for _, m := range w.seen {
		_, reported := m.(*runner.FileChanged)
		require.False(t, reported)
	}
	require.Empty(t, b.ping().Watch)
}
