package command

import (
	"context"
	"sync"

	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/runner/workspace"
)

// view is the state of the workspace for a seal: that of its repository, and the listing of all
// entries. It is read in the background.
type view struct {
	dir string // empty for none
	// described: the runner describes a workspace without a repository.
	described bool
	look      sync.Once
	done      chan struct{}
	halt      context.CancelFunc
	repo      *manifest.Git
	err       error // of the repository
	files     *workspace.Listing
}

func newView(dir string) *view { return &view{dir: dir, done: make(chan struct{}), halt: func() {}} }

// begin starts to read the view, once.
func (v *view) begin(ctx context.Context) {
	v.look.Do(func() {
		looking, halt := context.WithCancel(ctx)
		v.halt = halt
		go func() {
			defer close(v.done)
			if v.dir == "" {
				return
			}
			if v.described && !workspace.HasRepository(v.dir) {
				return // the runner lists it
			}
			v.repo, v.err = describeGit(looking, v.dir)
			v.files = workspace.List(looking, v.dir)
		}()
	})
}

// stop waits for a read that was started.
func (v *view) stop() {
	v.halt()
	v.look.Do(func() { close(v.done) })
	<-v.done
}

// git returns the state of the repository. begin must have been called.
func (v *view) git() (*manifest.Git, error) {
	<-v.done
	return v.repo, v.err
}

// tree returns the listing, which it reads again if it may have changed, or if it was left to the
// runner. begin must have been called.
func (v *view) tree(ctx context.Context, again bool) *workspace.Listing {
	<-v.done
	if again || v.files == nil {
		v.files = workspace.List(ctx, v.dir)
	}
	return v.files
}
