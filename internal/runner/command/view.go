package command

import (
	"context"
	"sync"

	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/runner/workspace"
)

// view is what a seal finds in the workspace: the state of its repository, and then everything that is there. It looks in
// the background.
type view struct {
	dir   string // empty for none
	look  sync.Once
	done  chan struct{}
	halt  context.CancelFunc
	repo  *manifest.Git
	err   error // of the repository
	files *workspace.Listing
}

func newView(dir string) *view { return &view{dir: dir, done: make(chan struct{}), halt: func() {}} }

// begin looks, once.
func (v *view) begin(ctx context.Context) {
	v.look.Do(func() {
		looking, halt := context.WithCancel(ctx)
		v.halt = halt
		go func() {
			defer close(v.done)
			if v.dir == "" {
				return
			}
			v.repo, v.err = describeGit(looking, v.dir)
			v.files = workspace.List(looking, v.dir)
		}()
	})
}

// stop waits for a look that was begun.
func (v *view) stop() {
	v.halt()
	v.look.Do(func() { close(v.done) })
	<-v.done
}

// git returns the state of the repository. The look must have begun.
func (v *view) git() (*manifest.Git, error) {
	<-v.done
	return v.repo, v.err
}

// tree returns what is there, which it looks for again where that may have changed. The look must have begun.
func (v *view) tree(ctx context.Context, again bool) *workspace.Listing {
	<-v.done
	if again {
		v.files = workspace.List(ctx, v.dir)
	}
	return v.files
}
