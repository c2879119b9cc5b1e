package turn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
)

const (
	// linkBytes bounds the messages of a turn that wait or are being committed.
	linkBytes = 8 << 20
	// linkShare is the part of linkBytes that every turn may use at any time. The rest comes from
	// the memory that all turns of a worker share, so a turn that is stuck or reads a lot does not
	// block other turns.
	linkShare = 256 << 10
	// messageCost is the memory overhead of a message in addition to its content.
	messageCost = 256
	// defaultReadAhead is the memory that all turns of a worker share.
	defaultReadAhead = 256 << 20
	// linkSilence is how long a link may be silent before it counts as broken. The runner sends a
	// message every AliveInterval.
	linkSilence = 4 * runner.AliveInterval
	// dialTimeout bounds the exec and the runner's first answer.
	dialTimeout = 20 * time.Second
)

// turnLink is an open link to the runner whose messages are read ahead.
type turnLink struct {
	link    *runner.Link
	process *sandbox.Process
	base    int64 // the number of the runner's frame 0 within the run
	inbox   *inbox
	room    *semaphore.Weighted // of linkBytes
	share   *semaphore.Weighted // of linkShare
	common  *semaphore.Weighted // of all turns of the worker
	held    []heldMessage       // the messages that take returned last
	steered bool                // a prompt waits for the running turn
	failed  error               // set before inbox is closed
	pacer   *pacer              // nil if the runner does not pause its agent
	unlink  func()              // counts the link as closed
	cancel  context.CancelFunc
	done    chan struct{}
}

// attach opens the link of a run after the last committed frame.
func (a *attempt) attach(ctx context.Context) (*turnLink, error) {
	hello, err := a.hello(ctx, a.in, a.frame)
	if err != nil {
		return nil, err
	}
	a.paces.linked.Add(1)
	unlink := sync.OnceFunc(func() { a.paces.linked.Add(-1) })
	link, process, err := a.dial(ctx, hello)
	if err != nil {
		unlink()
		return nil, err
	}
	if link.Welcome().ListFiles {
		if err := a.listFiles(ctx, link); err != nil {
			unlink()
			return nil, errors.Join(err, link.Close(), process.Close())
		}
	}
	readCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &turnLink{
		link: link, process: process, cancel: cancel, unlink: unlink,
		room: semaphore.NewWeighted(linkBytes), share: semaphore.NewWeighted(linkShare), common: a.readAhead,
		inbox: newInbox(), done: make(chan struct{}), base: a.start.Run.FrameBase,
	}
	go l.read(readCtx)
	if link.Welcome().Window {
		l.pacer = newPacer(link, &a.paces, l.base, a.frame)
		go l.pacer.send(readCtx)
	}
	return l, nil
}

// hello returns the message that opens the link of a run after a frame.
func (x *Executor) hello(ctx context.Context, in Request, frame int64) (runner.Hello, error) {
	token, err := x.Token(ctx, in.SessionID, in.Generation)
	if err != nil {
		return runner.Hello{}, err
	}
	files := in.Start.Files
	return runner.Hello{
		Token: token, Run: run.AgentID(in.RunID, in.Start.Run.Part),
		From: frame + 1 - in.Start.Run.FrameBase, Attempt: in.Start.Run.Attempt, Known: in.Start.Transcripts, Files: &files, Calls: true,
		Window: minWindow,
	}, nil
}

// dial returns the link that a greeting has opened, or opens one over the exec that the previous turn has
// left open, or that the restore has prepared, or over a new one. If such an exec fails, this attempt fails too: its hello may still
// arrive, and must not displace another link of the same attempt.
func (a *attempt) dial(ctx context.Context, hello runner.Hello) (*runner.Link, *sandbox.Process, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, errNoAnswer)
	defer cancel()
	greeted, err := a.in.Greeting.take(ctx, hello)
	if err != nil {
		return nil, nil, err
	}
	if greeted != nil {
		return greeted.link, greeted.process, nil
	}
	if kept := a.Links.take(ctx, a.in.SandboxID); kept != nil {
		if err := a.reattach(ctx, kept, hello); err != nil {
			return nil, nil, err
		}
		return kept.link, kept.process, nil
	}
	process, err := a.sandbox.Exec(ctx, sandbox.ExecSpec{Argv: runner.DefaultPaths().Attach(hello), Timeout: sandbox.MaxTimeout})
	if err != nil {
		return nil, nil, err
	}
	link, err := runner.Dial(ctx, process.Stdin, readCloser{process}, hello, a.readAhead)
	if err != nil {
		return nil, nil, errors.Join(err, process.Close())
	}
	return link, process, nil
}

// readCloser closes a process's link when its output is closed.
type readCloser struct{ *sandbox.Process }

func (r readCloser) Read(p []byte) (int, error) { return r.Stdout.Read(p) }

// welcome returns the runner's welcome, with frames numbered as in the run.
func (l *turnLink) welcome() runner.Welcome {
	w := l.link.Welcome()
	w.LastFrame += l.base
	w.Calls = slices.Clone(w.Calls)
	for i := range w.Calls {
		w.Calls[i] += l.base
	}
	return w
}

func (l *turnLink) read(ctx context.Context) {
	defer close(l.done)
	defer l.inbox.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := watchSilence(l.link, ctx.Done(), cancel)
	defer watch.stop()
	for {
		m, err := watch.next(ctx)
		if err != nil {
			l.failed = err
			return
		}
		if f, ok := m.Message.(*runner.Frame); ok {
			f.No += l.base
		}
		held, err := l.hold(ctx, m)
		if err != nil {
			l.failed = err
			return
		}
		if !l.inbox.put(ctx, held) {
			l.giveBack(held)
			l.failed = ctx.Err()
			return
		}
	}
}

// silenceWatch ends reads from a link that makes no progress for linkSilence while a message is
// awaited. One timer checks at intervals, so that no timer has to be set for each message.
type silenceWatch struct {
	link    *runner.Link
	done    <-chan struct{} // closed by fail
	fail    context.CancelCauseFunc
	waiting atomic.Int64 // the start of the wait for a message, in Unix nanoseconds; 0 if none is awaited
	timer   *time.Timer
}

// watchSilence begins the watch; fail ends the wait for messages.
func watchSilence(link *runner.Link, done <-chan struct{}, fail context.CancelCauseFunc) *silenceWatch {
	w := &silenceWatch{link: link, done: done, fail: fail}
	w.timer = time.AfterFunc(2*linkSilence, w.look)
	w.timer.Reset(linkSilence) // look uses the timer
	return w
}

// next waits for a message.
func (w *silenceWatch) next(ctx context.Context) (runner.Held, error) {
	w.waiting.Store(time.Now().UnixNano())
	defer w.waiting.Store(0)
	return w.link.NextHeld(ctx)
}

// look fails the link if it has been silent for too long, and otherwise schedules the next look.
func (w *silenceWatch) look() {
	left := linkSilence
	if since := w.waiting.Load(); since != 0 {
		last := time.Unix(0, since)
		if progress := w.link.Progress(); progress.After(last) {
			last = progress
		}
		if left = time.Until(last.Add(linkSilence)); left <= 0 {
			w.fail(errSilent)
			return
		}
	}
	select {
	case <-w.done:
	default:
		w.timer.Reset(left)
	}
}

// stop ends the watch; one more look may follow one in progress.
func (w *silenceWatch) stop() {
	w.fail(nil)
	w.timer.Stop()
}

// hold waits until there is room for a message.
func (l *turnLink) hold(ctx context.Context, m runner.Held) (heldMessage, error) {
	h := heldMessage{message: m.Message, weight: min(m.Bytes+messageCost, linkBytes), common: m.Reserved}
	if err := l.room.Acquire(ctx, h.weight); err != nil {
		if h.common > 0 {
			l.common.Release(h.common)
		}
		return h, err
	}
	var err error
	switch {
	case h.common > 0:
	case l.share.TryAcquire(h.weight):
	case l.common.TryAcquire(h.weight):
		h.common = h.weight
	case h.weight <= linkShare:
		err = l.share.Acquire(ctx, h.weight) // released by this turn's own commits
	default:
		h.common = h.weight
		err = l.common.Acquire(ctx, h.weight)
	}
	if err != nil {
		l.room.Release(h.weight)
	}
	return h, err
}

func (l *turnLink) giveBack(h heldMessage) {
	l.room.Release(h.weight)
	if h.common > 0 {
		l.common.Release(h.common)
	} else {
		l.share.Release(h.weight)
	}
}

// weight estimates the memory that the content of a message takes.
func weight(m runner.Message) int64 {
	n := messageCost
	switch m := m.(type) {
	case *runner.Frame:
		n += len(m.Data)
	case *runner.FileChanged:
		n += len(m.Data) + len(m.Path)
	case *runner.Segment:
		n += len(m.Data) + len(m.Path)
	case *runner.Diff:
		n += len(m.Patch)
	}
	return int64(min(n, linkBytes))
}

var errNoAnswer = errors.New("the runner did not answer in time")

var errSilent = fmt.Errorf("the runner has sent nothing for %s", linkSilence)

// take waits for a message, one of the ticks, a change or the end of ctx, and returns all messages
// received so far. Messages that arrived before the link broke are returned before the error. A
// call releases the messages that the previous call returned.
func (l *turnLink) take(
	ctx context.Context, tick, due <-chan time.Time, change, steer <-chan struct{},
) (out []runner.Message, changed bool, err error) {
	l.free()
	select {
	case <-l.inbox.ready:
	case <-tick:
		return nil, false, nil
	case <-due:
		return nil, false, nil
	case <-change:
		return nil, true, nil
	case <-steer:
		l.steered = true
		return nil, false, nil
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	held, ended := l.inbox.take(l.held)
	if l.held = held; ended && len(held) == 0 {
		return nil, false, l.err()
	}
	out = make([]runner.Message, len(held))
	for i, h := range held {
		out[i] = h.message
	}
	return out, false, nil
}

// free releases the room of the messages that take returned last.
func (l *turnLink) free() {
	for _, h := range l.held {
		l.giveBack(h)
	}
	clear(l.held)
	l.held = l.held[:0]
}

// drain releases all room, once no further messages are taken.
func (l *turnLink) drain() {
	l.free()
	l.held, _ = l.inbox.take(l.held)
	l.free()
}

func (l *turnLink) err() error {
	if errors.Is(l.failed, io.EOF) {
		return fmt.Errorf("the link to the runner ended: %w", l.failed)
	}
	return l.failed
}

func (l *turnLink) close() {
	l.cancel()
	l.link.Close() // the agent continues either way
	l.stopped()
	l.drain()
	l.process.Close() // closes only the link
}

// stopped waits for the goroutines of the link.
func (l *turnLink) stopped() {
	<-l.done
	if l.pacer != nil {
		<-l.pacer.done
	}
	l.unlink()
}

// release stops reading from the link of a turn that has ended, so that it can be reused.
func (l *turnLink) release() (*runner.Link, *sandbox.Process) {
	l.cancel()
	l.stopped()
	l.drain()
	return l.link, l.process
}

// isStale reports whether the runner knows a newer attempt at the run.
func isStale(err error) bool {
	refused, ok := errors.AsType[*runner.Error](err)
	return ok && refused.Code == runner.CodeStale
}

// flushed reports whether the runner has reported that everything on disk is sent.
func flushed(messages []runner.Message) bool {
	for _, m := range messages {
		if f, ok := m.(*runner.Flushed); ok && f.ID == flushAtEnd {
			return true
		}
	}
	return false
}

// flushAtEnd is the id of the one flush of a link.
const flushAtEnd = 1
