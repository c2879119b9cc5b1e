package follow

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/workspace"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

const (
	// quiet bounds how long a burst of changes delays a pass.
	quiet = 250 * time.Millisecond
	// pollFiles is the interval of passes over a workspace without inotify, netFiles that of the
	// additional passes with inotify.
	pollFiles, netFiles = time.Second, 15 * time.Second
	// duty bounds the cost of passes: a pass is followed by a pause of this many times its
	// duration.
	duty = 50
)

// Workspace contains the only index of the workspace, for the live link. It is safe for concurrent
// use.
type Workspace struct {
	root, dir string

	mu    sync.Mutex
	index *workspace.Index // nil until a worker requests it
	// early watches a restored workspace since the pass that was made before the first link; nil if there was none, or it is used.
	early *workspace.Watcher
	// found is the digest of everything in the restored workspace; empty if it is not known. Written before loaded is closed.
	found  string
	loaded chan struct{}
}

// NewWorkspace returns a Workspace for the directory root. Its index is stored in dir.
func NewWorkspace(root, dir string) *Workspace {
	return &Workspace{root: root, dir: dir, loaded: make(chan struct{})}
}

// earlyLife is how long Load's watcher waits for the first link. A prompt that wakes a session
// arrives within a second. A sandbox that was woken without a prompt must not hold an inotify
// instance, because a machine has few of them.
const earlyLife = time.Minute

// Load makes a pass over a workspace whose index is stored, so that the first link need not wait for
// one: a worker opens the first link long after the runner of a restored sandbox has started.
func (w *Workspace) Load() {
	w.mu.Lock()
	defer w.mu.Unlock()
	scan, watcher := w.scan()
	if scan == nil {
		return
	}
	// Reading the index takes a while, and the comparison of the restored workspace does not need it.
	if !w.open().Prepare(scan) {
		watcher.Close()
		return
	}
	w.early = watcher
	time.AfterFunc(earlyLife, w.Close)
}

// scan scans a workspace with a stored index, and sets found. It returns nil if there is nothing to
// prepare.
func (w *Workspace) scan() (*workspace.Scan, *workspace.Watcher) {
	defer close(w.loaded)
	if !workspace.IsKept(w.dir) {
		return nil, nil
	}
	defer inParallel()()
	watcher, err := workspace.NewWatcher()
	if err != nil {
		return nil, nil // without a watcher, changes before the first link would be missed
	}
	scan, err := workspace.NewScan(w.root, watcher.Add)
	if err != nil {
		watcher.Close()
		return nil, nil
	}
	w.found = scan.Digest()
	return scan, watcher
}

// Found waits until Load has scanned the workspace, and returns its digest: see manifest.Tree.
// The digest is empty if no index was stored, or the workspace could not be listed.
func (w *Workspace) Found() string {
	<-w.loaded // the pass is bounded
	return w.found
}

// Close stops the watcher that Load has started.
func (w *Workspace) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.early != nil {
		w.early.Close()
		w.early = nil
	}
}

// prepared returns the watcher of the early pass if the workspace has not changed since and a
// worker at a position needs no other pass. It returns the watcher only once. It must be called
// with mu held.
func (w *Workspace) prepared(p workspacefile.Position) *workspace.Watcher {
	watcher := w.early
	if watcher == nil {
		return nil
	}
	w.early = nil
	if watcher.Broken() || len(watcher.Wake()) > 0 || !w.open().Current(p) {
		watcher.Close()
		return nil
	}
	return watcher
}

// open must be called with mu held.
func (w *Workspace) open() *workspace.Index {
	if w.index == nil {
		w.index = workspace.Open(w.root, w.dir)
	}
	return w.index
}

// WantsList reports whether a worker must list its stored files.
func (w *Workspace) WantsList(p workspacefile.Position) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wantsList(p)
}

// wantsList must be called with mu held.
func (w *Workspace) wantsList(p workspacefile.Position) bool {
	return p.Lineage != "" && !w.open().Continues(p)
}

// take continues the index from a position, scans the workspace, and reports the lineage if the
// worker does not know it. watch is passed to Pass. With everything, it returns a listing of the whole
// workspace. take must be called with mu held.
func (w *Workspace) take(
	p workspacefile.Position, known []workspacefile.Known, watch func(dir string), everything bool, send func(runner.Message) error,
) (*workspace.Index, *workspace.Listing, error) {
	if early := w.prepared(p); early != nil { // take makes its own pass
		early.Close()
	}
	i := w.open()
	if i.Continues(p) {
		i.Resume(p)
	} else {
		i.Begin(p, known)
	}
	var restore func()
	var all *workspace.Listing
	var err error
	if everything { // and more than the index has
		restore = inParallel()
		all, _, err = i.List(true, watch)
	} else {
		restore = inParallelIfMany(i)
		_, err = i.Pass(true, watch)
	}
	restore() // before the worker delays it
	if err == nil && i.Lineage() != p.Lineage {
		err = send(&runner.FilesBegun{Lineage: i.Lineage(), Base: i.Base()})
	}
	return i, all, err
}

// manyFiles is the number of files from which the passes at the beginning and at the end of a turn are
// worth a second processor: changing the number of processors stops the process for a moment.
const manyFiles = 1000

// inParallelIfMany is inParallel for a pass over at least manyFiles files.
func inParallelIfMany(i *workspace.Index) (restore func()) {
	if i.Files() < manyFiles {
		return func() {}
	}
	return inParallel()
}

// gcPercentOfScan lets the heap grow to five times its size before it is collected: most of what a scan
// allocates stays in use until its end, so that earlier collections would only cost time.
const gcPercentOfScan = 400

// scans counts the scans in parallel, which change settings of the process.
var scans struct {
	sync.Mutex
	running             int
	processors, percent int // before the first of them
}

// inParallel lets a scan that a session waits for read directories in parallel, until restore is
// called: the runner otherwise uses one processor. It also delays collections of garbage.
func inParallel() (restore func()) {
	scans.Lock()
	defer scans.Unlock()
	if scans.running++; scans.running == 1 {
		scans.processors = runtime.GOMAXPROCS(0)
		runtime.GOMAXPROCS(max(scans.processors, workspace.Listers))
		scans.percent = debug.SetGCPercent(gcPercentOfScan)
	}
	return func() {
		scans.Lock()
		defer scans.Unlock()
		if scans.running--; scans.running == 0 {
			debug.SetGCPercent(scans.percent)
			runtime.GOMAXPROCS(scans.processors)
		}
	}
}

// report sends the findings of the last pass.
func report(i *workspace.Index, send func(runner.Message) error) error {
	return i.Report(
		func(c workspacefile.Change) error { return send(&runner.FileChanged{Change: c}) },
		func(seq int64) error { return send(&runner.FilesBounded{Seq: seq}) },
	)
}

// ErrNotListed means that the list of the worker's stored files is required.
var ErrNotListed = errors.New("the index does not continue from the stored files")

// Seal sends the changes that a worker lacks. It sets the key of the diff to take in the answer;
// the key is empty if the worker has the diff. It fails with ErrNotListed if the list of stored
// files is required and missing. With describe, the answer also describes a workspace without a
// repository: with one, git may still write to it, so the caller describes it later.
func (w *Workspace) Seal(
	p workspacefile.Position, listed bool, known []workspacefile.Known, describe bool, send func(runner.Message) error, answer *runner.Sealed,
) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !listed && w.wantsList(p) {
		return ErrNotListed
	}
	describe = describe && !workspace.HasRepository(w.root)
	i, all, err := w.take(p, known, nil, describe, send)
	if err != nil {
		return err
	}
	if err := errors.Join(report(i, send), i.Save()); err != nil {
		return err
	}
	if key := i.DiffKey(); key != p.DiffKey {
		answer.DiffKey = key
	}
	if describe && answer.DiffKey == "" { // a diff may start git
		if tree, err := all.Take(context.Background(), w.dir); err == nil { // otherwise the caller tries it again
			answer.Tree = &tree
		}
	}
	return nil
}
