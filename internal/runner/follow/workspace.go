package follow

import (
	"errors"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/workspace"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

const (
	// quiet is how long a burst of changes may continue before a pass.
	quiet = 250 * time.Millisecond
	// pollFiles is the interval of passes over a workspace without inotify, and netFiles with it,
	// as a safety net.
	pollFiles, netFiles = time.Second, 15 * time.Second
	// duty bounds what looking costs: a pass over a large workspace is followed by a
	// pause of that many times as long.
	duty = 50
)

// Workspace has the one index of the workspace, for whichever link is live. It is safe for concurrent use.
type Workspace struct {
	root, dir string

	mu    sync.Mutex
	index *workspace.Index // nil until a worker requests it
}

// NewWorkspace is for the workspace at root. Its index is kept in dir.
func NewWorkspace(root, dir string) *Workspace { return &Workspace{root: root, dir: dir} }

// Load reads the index if one is kept, so that the first link need not wait for it.
func (w *Workspace) Load() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open()
}

// open needs mu.
func (w *Workspace) open() *workspace.Index {
	if w.index == nil {
		w.index = workspace.Open(w.root, w.dir)
	}
	return w.index
}

// WantsList reports whether a worker must list the files that it has stored.
func (w *Workspace) WantsList(p workspacefile.Position) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wantsList(p)
}

// wantsList needs mu.
func (w *Workspace) wantsList(p workspacefile.Position) bool {
	return p.Lineage != "" && !w.open().Continues(p)
}

// take makes the index continue from a position, looks through the workspace, and reports if the worker does not know its
// lineage. watch is that of Pass. It needs mu.
func (w *Workspace) take(
	p workspacefile.Position, known []workspacefile.Known, watch func(dir string), send func(runner.Message) error,
) (*workspace.Index, error) {
	i := w.open()
	if i.Continues(p) {
		i.Resume(p)
	} else {
		i.Begin(p, known)
	}
	_, err := i.Pass(true, watch)
	if err == nil && i.Lineage() != p.Lineage {
		err = send(&runner.FilesBegun{Lineage: i.Lineage(), Base: i.Base()})
	}
	return i, err
}

// report sends what the last pass has found.
func report(i *workspace.Index, send func(runner.Message) error) error {
	return i.Report(
		func(c workspacefile.Change) error { return send(&runner.FileChanged{Change: c}) },
		func(seq int64) error { return send(&runner.FilesBounded{Seq: seq}) },
	)
}

// ErrNotListed says that a list of the files that a worker has stored is needed.
var ErrNotListed = errors.New("the index does not continue from the stored files")

// Seal hands over what a worker does not have, and returns the key of the diff
// that is to be taken; empty when the worker has it. Without a list of what is stored, it fails
// with ErrNotListed if the list is needed.
func (w *Workspace) Seal(p workspacefile.Position, listed bool, known []workspacefile.Known, send func(runner.Message) error) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !listed && w.wantsList(p) {
		return "", ErrNotListed
	}
	i, err := w.take(p, known, nil, send)
	if err != nil {
		return "", err
	}
	if err := errors.Join(report(i, send), i.Save()); err != nil {
		return "", err
	}
	if key := i.DiffKey(); key != p.DiffKey {
		return key, nil
	}
	return "", nil
}
