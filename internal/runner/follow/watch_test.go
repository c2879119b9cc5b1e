package follow

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/workspace"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// waitLimit bounds each wait of a test.
const waitLimit = 2 * time.Minute

// link receives the messages of a watch.
type link struct {
	*Watch
	t        *testing.T
	messages chan runner.Message
	end      context.CancelFunc
	ctx      context.Context
	list     chan []workspacefile.Known
}

// watched starts a watch as a link does.
func watched(t *testing.T, w *Workspace, p workspacefile.Position) *link {
	t.Helper()
	l := &link{t: t, messages: make(chan runner.Message, 1024)}
	l.ctx, l.end = context.WithCancel(t.Context())
	if w.WantsList(p) {
		l.list = make(chan []workspacefile.Known, 1)
	}
	l.Watch = w.Watch(func(m runner.Message) error {
		select {
		case l.messages <- m:
			return nil
		case <-l.ctx.Done():
			return l.ctx.Err()
		}
	}, slog.New(slog.DiscardHandler))
	var running sync.WaitGroup
	running.Go(func() { l.Run(l.ctx, p, l.list) })
	end := l.end
	l.end = func() { end(); running.Wait() }
	t.Cleanup(l.end)
	return l
}

// until waits for a message of a kind.
func until[M runner.Message](l *link) M {
	l.t.Helper()
	for {
		select {
		case m := <-l.messages:
			if got, ok := m.(M); ok {
				return got
			}
		case <-time.After(waitLimit):
			var none M
			l.t.Fatalf("no %T comes", none)
		}
	}
}

func newWorkspace(t *testing.T) (*Workspace, string) {
	t.Helper()
	root := t.TempDir()
	return NewWorkspace(root, filepath.Join(t.TempDir(), "index")), root
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
}

func TestWatchSendsChangesAsTheyHappen(t *testing.T) {
	t.Parallel()
	w, root := newWorkspace(t)
	write(t, root, "before", "one\n")
	l := watched(t, w, workspacefile.Position{})
	begun := until[*runner.FilesBegun](l)
	require.NotEmpty(t, begun.Lineage)
	l.AwaitSurvey(l.ctx)
	write(t, root, "after", "two\n")
	for {
		c := until[*runner.FileChanged](l)
		require.Equal(t, c.Path == "before", c.Initial, "what the session began with is marked")
		if c.Path == "after" && string(c.Data) == "two\n" {
			break
		}
	}
	require.Eventually(t, func() bool { return l.Mode() == runner.WatchInotify }, waitLimit, time.Millisecond)
}

// TestWatchWaitsForListOfWorker checks a position of another lineage, from which the index
// cannot continue. Nothing is sent, and no prompt is delivered, before the worker has listed its
// stored files.
func TestWatchWaitsForListOfWorker(t *testing.T) {
	t.Parallel()
	w, root := newWorkspace(t)
	write(t, root, "new", "one\n")
	l := watched(t, w, workspacefile.Position{Lineage: "of another sandbox", Seq: 9})
	require.NotNil(t, l.list)
	require.Empty(t, l.Mode())
	select {
	case <-l.surveyed:
		t.Fatal("the list has not come")
	default:
	}
	l.list <- []workspacefile.Known{{Path: "gone", Size: 1}}
	until[*runner.FilesBegun](l)
	l.AwaitSurvey(l.ctx)
	changes := map[string]workspacefile.ChangeKind{}
	for len(changes) < 2 {
		c := until[*runner.FileChanged](l)
		changes[c.Path] = c.Kind
	}
	require.Contains(t, changes, "new")
	require.Equal(t, workspacefile.Deleted, changes["gone"])
}

func TestLinkEndReleasesWatchWaiters(t *testing.T) {
	t.Parallel()
	w, _ := newWorkspace(t)
	l := watched(t, w, workspacefile.Position{Lineage: "x"})
	var waiting sync.WaitGroup
	waiting.Go(func() { l.AwaitSurvey(l.ctx) })
	waiting.Go(func() {
		if s, err := l.Flush(l.ctx); s != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("flush of a link that has ended: %v, %v", s, err)
		}
	})
	l.end()
	waiting.Wait()
}

// repository creates a repository with one file and one commit.
func repository(t *testing.T, root string) (git func(...string)) {
	t.Helper()
	git = func(args ...string) {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", root, "-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	git("init", "-q")
	write(t, root, "file", "one\n")
	git("add", ".")
	git("commit", "-q", "-m", "first")
	return git
}

// TestDiffFollowsHead checks one diff each for a commit and for another branch, and
// none for changes of files.
func TestDiffFollowsHead(t *testing.T) {
	t.Parallel()
	w, root := newWorkspace(t)
	git := repository(t, root)
	surveys := make(chan *runner.Survey, 16)
	l := &link{t: t, messages: make(chan runner.Message, 1024), Watch: w.Watch(nil, slog.New(slog.DiscardHandler))}
	l.pause, l.send = 0, func(m runner.Message) error { l.messages <- m; return nil }
	l.Refresh(func(s *runner.Survey) error { surveys <- s; return nil })
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx, workspacefile.Position{}, nil) })
	defer running.Wait()
	defer stop()
	l.AwaitSurvey(ctx)
	next := func() *runner.Survey {
		select {
		case s := <-surveys:
			return s
		case <-time.After(waitLimit):
			t.Fatal("no diff is asked for")
			return nil
		}
	}
	changed := func(name string) {
		for until[*runner.FileChanged](l).Path != name {
		}
	}
	write(t, root, "a", "1")
	changed("a")
	write(t, root, "b", "1")
	changed("b") // the previous pass has ended
	require.Empty(t, surveys)
	git("add", ".")
	git("commit", "-q", "-m", "second")
	write(t, root, "c", "1")
	first := next()
	require.Equal(t, root, first.Workspace)
	git("checkout", "-q", "-b", "other")
	write(t, root, "d", "1")
	second := next()
	require.NotEqual(t, first.Key, second.Key)
	write(t, root, "e", "1")
	changed("e")
	write(t, root, "f", "1")
	changed("f")
	require.Empty(t, surveys)
}

func TestFlushReportsEverythingAndAsksForDiffOnce(t *testing.T) {
	t.Parallel()
	w, root := newWorkspace(t)
	repository(t, root)
	l := watched(t, w, workspacefile.Position{})
	require.NotEmpty(t, until[*runner.FilesBegun](l).Base)
	l.AwaitSurvey(l.ctx)

	write(t, root, "file", "two\n")
	survey, err := l.Flush(l.ctx)
	require.NoError(t, err)
	require.NotNil(t, survey)
	require.Equal(t, root, survey.Workspace)
	require.Equal(t, "file", until[*runner.FileChanged](l).Path, "it was sent before the flush was answered")
	again, err := l.Flush(l.ctx)
	require.NoError(t, err)
	require.Nil(t, again, "nothing has changed since")
	write(t, root, "file", "three\n")
	next, err := l.Flush(l.ctx)
	require.NoError(t, err)
	require.NotEqual(t, survey.Key, next.Key)

	l.end()
	var sent []runner.Message
	send := func(m runner.Message) error { sent = append(sent, m); return nil }
	position := workspacefile.Position{Lineage: w.index.Lineage(), Seq: w.index.Seq(), Base: w.index.Base(), DiffKey: next.Key}
	var sealed runner.Sealed
	require.NoError(t, w.Seal(position, true, nil, true, send, &sealed))
	require.Empty(t, sealed.DiffKey, "the worker has the diff")
	require.Nil(t, sealed.Tree, "git may still write to the workspace")
	require.Empty(t, sent)
	position.DiffKey, position.Seq = "older", 0
	require.NoError(t, w.Seal(position, true, nil, true, send, &sealed))
	require.NotEmpty(t, sent, "changes after the position are sent again, with new numbers")
	require.Equal(t, w.index.DiffKey(), sealed.DiffKey)

	sent, position.Lineage = nil, "of another sandbox"
	require.ErrorIs(t, w.Seal(position, false, nil, true, send, &sealed), ErrNotListed)
	require.Empty(t, sent, "nothing that is stored is taken for lost")
	require.NoError(t, w.Seal(position, true, []workspacefile.Known{{Path: "gone"}}, true, send, &sealed))
	require.NotEmpty(t, sent)
}

// TestFirstLinkOfRestoredWorkspaceWaitsForNoPass checks that the first link uses the runner's
// earlier pass, unless the workspace has changed since, or the worker has another position.
func TestFirstLinkOfRestoredWorkspaceWaitsForNoPass(t *testing.T) {
	t.Parallel()
	w, root := newWorkspace(t)
	write(t, root, "a", "1")
	l := watched(t, w, workspacefile.Position{})
	until[*runner.FilesBegun](l)
	_, err := l.Flush(l.ctx)
	require.NoError(t, err)
	l.end()
	position := workspacefile.Position{Lineage: w.index.Lineage(), Seq: w.index.Seq(), Base: w.index.Base()}
	restored := func() *Workspace {
		next := NewWorkspace(root, w.dir)
		next.Load()
		t.Cleanup(next.Close)
		require.NotNil(t, next.early)
		require.Equal(t, 1, next.index.Passes())
		return next
	}
	surveyed := func(next *Workspace, p workspacefile.Position) int {
		l := watched(t, next, p)
		defer l.end()
		l.AwaitSurvey(l.ctx)
		next.mu.Lock()
		defer next.mu.Unlock()
		require.Nil(t, next.early)
		return next.index.Passes()
	}

	next := restored()
	require.Equal(t, 1, surveyed(next, position))
	l = watched(t, next, position) // a later link
	l.AwaitSurvey(l.ctx)
	write(t, root, "b", "2")
	for until[*runner.FileChanged](l).Path != "b" {
	}
	_, err = l.Flush(l.ctx)
	require.NoError(t, err)
	l.end()
	position.Seq = next.index.Seq()

	older := position
	older.Seq--
	require.Equal(t, 2, surveyed(restored(), older), "the worker has not stored everything")

	next = restored()
	write(t, root, "c", "3")
	require.Eventually(t, func() bool { return len(next.early.Wake()) > 0 }, waitLimit, time.Millisecond)
	require.Equal(t, 2, surveyed(next, position), "something has happened since")

	next = restored()
	var sealed runner.Sealed
	require.NoError(t, next.Seal(position, true, nil, true, func(runner.Message) error { return nil }, &sealed))
	require.Equal(t, sealed.DiffKey == "", sealed.Tree != nil, "it is described unless a diff is due")
	require.Nil(t, next.early)
	require.Equal(t, 2, next.index.Passes(), "a seal looks itself")
}

// TestDigestOfRestoredWorkspaceNeedsNoIndex checks that a restored workspace is compared before its
// index is read, which takes long for many files.
func TestDigestOfRestoredWorkspaceNeedsNoIndex(t *testing.T) {
	t.Parallel()
	w, root := newWorkspace(t)
	w.Load()
	require.Empty(t, w.Found(), "no index is stored, so nothing was restored")
	write(t, root, "a", "1")
	l := watched(t, w, workspacefile.Position{})
	until[*runner.FilesBegun](l)
	_, err := l.Flush(l.ctx)
	require.NoError(t, err)
	l.end()
	digest := workspace.List(t.Context(), root).Digest()
	stored, err := filepath.Glob(filepath.Join(w.dir, "workspace.index"))
	require.NoError(t, err)
	require.Len(t, stored, 1)
	require.NoError(t, os.WriteFile(stored[0], []byte("damaged"), 0o600))
	next := NewWorkspace(root, w.dir)
	next.Load()
	require.Equal(t, digest, next.Found())
	require.Nil(t, next.early, "the first link makes its own pass")
}

// TestWatchWithFailingSend checks that the watch ends, and that a later link can use the index.
func TestWatchWithFailingSend(t *testing.T) {
	t.Parallel()
	w, root := newWorkspace(t)
	broken := w.Watch(func(runner.Message) error { return errors.New("broken") }, slog.New(slog.DiscardHandler))
	broken.Run(t.Context(), workspacefile.Position{}, nil)
	broken.AwaitSurvey(t.Context())
	write(t, root, "file", "one\n")
	l := watched(t, w, workspacefile.Position{})
	until[*runner.FilesBegun](l)
}
