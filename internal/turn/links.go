package turn

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runnerexec"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
)

const (
	// linkKept is how long a link is kept after a turn. It must be shorter than runner.MaxDetached.
	linkKept = time.Minute
	// maxLinksKept bounds the kept links: each occupies a small process in its sandbox and two
	// streams to the provider.
	maxLinksKept = 1000
	// detachTimeout bounds the detaching of a link.
	detachTimeout = 5 * time.Second
)

// Links keeps the execs of links after the ends of their turns, so that a turn or a seal that
// follows soon needs no new exec. A kept link serves no run and does not affect other links that
// attach in the meantime. Only this worker uses it, for the next turn or seal in the sandbox. It
// ends by itself after a minute, with the sandbox, or with the worker. A nil *Links keeps no links.
type Links struct {
	mu     sync.Mutex
	kept   map[string]*keptLink // by sandbox
	closed bool
	tasks  sync.WaitGroup
}

// NewLinks returns an empty Links. Close it after the last turn.
func NewLinks() *Links { return &Links{kept: map[string]*keptLink{}} }

// keptLink is a link that serves no run.
type keptLink struct {
	link     *runner.Link
	process  *sandbox.Process
	timer    *time.Timer
	detached chan struct{} // closed once detaching has ended
	failed   bool          // detaching has failed; read after detached is closed
}

func (k *keptLink) close() {
	k.link.Close()
	k.process.Close() // closes only the link
}

// Verify starts the exec of the first link of a sandbox before its run is known, compares the sandbox
// over it, and keeps the link. A *runnerexec.ExitError has the exit code of the command verify.
func (l *Links) Verify(ctx context.Context, sb *sandbox.Sandbox, r runner.VerifyRequest) (runner.Verification, error) {
	process, err := sb.Exec(ctx, sandbox.ExecSpec{Argv: runner.DefaultPaths().AttachNext(), Timeout: sandbox.MaxTimeout})
	if err != nil {
		return runner.Verification{}, err
	}
	link := runner.Open(ctx, process.Stdin, readCloser{process})
	k := &keptLink{link: link, process: process, detached: make(chan struct{})}
	close(k.detached)
	v, err := link.Verify(ctx, r)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = exited(ctx, process, err)
		}
		k.close()
		return runner.Verification{}, err
	}
	l.giveBack(sb.ID(), k)
	return v, nil
}

// maxStderr bounds the bytes of stderr in an error.
const maxStderr = 4 << 10

// exited returns the error of a process that has ended its output because of cause.
func exited(ctx context.Context, process *sandbox.Process, cause error) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	code, err := process.Wait(ctx)
	if err != nil || code == runner.ExitOK {
		return errors.Join(cause, err)
	}
	text, _ := io.ReadAll(io.LimitReader(process.Stderr, maxStderr)) // only for the error message
	return &runnerexec.ExitError{Code: code, Stderr: text}
}

// giveBack keeps a detached link for its next use.
func (l *Links) giveBack(sandboxID string, k *keptLink) {
	if l == nil || !l.register(sandboxID, k) {
		k.close()
		return
	}
	l.tasks.Done()
}

// keep detaches a link concurrently with its caller, and keeps it for the next turn in the sandbox.
func (l *Links) keep(ctx context.Context, sandboxID string, link *runner.Link, process *sandbox.Process) {
	k := &keptLink{link: link, process: process, detached: make(chan struct{})}
	if l == nil || !l.register(sandboxID, k) {
		k.close()
		return
	}
	go func() {
		defer l.tasks.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), detachTimeout)
		defer cancel()
		k.failed = link.Detach(ctx) != nil
		close(k.detached)
		if k.failed {
			l.drop(sandboxID, k)
		}
	}()
}

// register adds k and counts the task that detaches it. It returns false if k must not be kept.
func (l *Links) register(sandboxID string, k *keptLink) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.kept[sandboxID] != nil || len(l.kept) >= maxLinksKept {
		return false
	}
	k.timer = time.AfterFunc(linkKept, func() { l.drop(sandboxID, k) })
	l.kept[sandboxID] = k
	l.tasks.Add(1)
	return true
}

// take returns the link that is kept for a sandbox, or nil if there is no working link.
func (l *Links) take(ctx context.Context, sandboxID string) *keptLink {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	k := l.kept[sandboxID]
	delete(l.kept, sandboxID)
	l.mu.Unlock()
	if k == nil {
		return nil
	}
	k.timer.Stop()
	select {
	case <-k.detached:
		if !k.failed && !k.link.Ended() {
			return k
		}
	case <-ctx.Done():
	}
	k.close()
	return nil
}

// Seals reports whether a link is kept over which Seal can probably seal a sandbox.
func (l *Links) Seals(sandboxID string) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kept[sandboxID]
	return k != nil && !k.link.Ended() && k.link.Welcome().Seals
}

// Seal seals a sandbox over its kept link, and keeps the link. It reports false, and has done
// nothing, if no link is kept that can do it.
func (l *Links) Seal(ctx context.Context, sandboxID string, r runner.SealRequest, store func(runner.Message) error) (s runner.Seal, done bool, err error) {
	k := l.take(ctx, sandboxID)
	if k == nil {
		return runner.Seal{}, false, nil
	}
	if !k.link.Welcome().Seals {
		k.close()
		return runner.Seal{}, false, nil
	}
	if s, err = k.link.Seal(ctx, r, store); err != nil {
		k.close()
		return runner.Seal{}, true, err
	}
	l.giveBack(sandboxID, k)
	return s, true, nil
}

// drop closes a link that was not reused.
func (l *Links) drop(sandboxID string, k *keptLink) {
	l.mu.Lock()
	owned := l.kept[sandboxID] == k
	if owned {
		delete(l.kept, sandboxID)
	}
	l.mu.Unlock()
	if owned {
		k.timer.Stop()
		k.close()
	}
}

// Close closes every link, including those that are kept later.
func (l *Links) Close() {
	l.mu.Lock()
	kept := l.kept
	l.kept, l.closed = map[string]*keptLink{}, true
	l.mu.Unlock()
	for _, k := range kept {
		k.timer.Stop()
		k.close()
	}
	l.tasks.Wait()
}
