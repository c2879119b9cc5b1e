package activities

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
)

const (
	// linkBacklog is how many messages wait for the commit under way. What does
	// not fit waits in the runner's journal.
	linkBacklog = 1024
	// linkBytes is how much content waits or is being committed: files of the
	// workspace come a megabyte at a time.
	linkBytes = 16 << 20
	// linkSilence is how long a link may say nothing before it counts as broken:
	// the runner speaks every AliveInterval.
	linkSilence = 4 * runner.AliveInterval
	// dialTimeout bounds the exec and the runner's first answer.
	dialTimeout = 20 * time.Second
)

// turnLink is a live link to the runner, read ahead.
type turnLink struct {
	link     *runner.Link
	process  *sandbox.Process
	messages chan runner.Message
	room     *semaphore.Weighted // of linkBytes
	held     int64               // by the messages that take returned last
	failed   error               // set before messages is closed
	cancel   context.CancelFunc
	done     chan struct{}
}

// attach opens the link of a run behind the last frame that is committed.
func (t *turn) attach(ctx context.Context) (*turnLink, error) {
	hello := runner.Hello{
		Token: t.runnerToken(t.in.SessionID, t.in.Generation), Run: t.in.RunID,
		From: t.frame + 1, Attempt: t.start.Run.Attempt, Known: t.start.Transcripts, Files: &t.start.Files,
	}
	link, process, err := t.dial(ctx, hello)
	if err != nil {
		return nil, err
	}
	if link.Welcome().ListFiles {
		if err := t.listFiles(ctx, link); err != nil {
			return nil, errors.Join(err, link.Close(), process.Close())
		}
	}
	readCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &turnLink{
		link: link, process: process, cancel: cancel, room: semaphore.NewWeighted(linkBytes),
		messages: make(chan runner.Message, linkBacklog), done: make(chan struct{}),
	}
	go l.read(readCtx)
	return l, nil
}

// dial opens a link over the exec that the turn before has left, or over a new one.
// Where the one that was left fails this attempt does: its hello may be on its way, and
// must not displace a link of the same attempt.
func (t *turn) dial(ctx context.Context, hello runner.Hello) (*runner.Link, *sandbox.Process, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, errNoAnswer)
	defer cancel()
	if kept := t.Links.take(ctx, t.in.SandboxID); kept != nil {
		if err := kept.link.Reattach(ctx, hello); err != nil {
			kept.close()
			return nil, nil, err
		}
		return kept.link, kept.process, nil
	}
	process, err := t.sandbox.Exec(ctx, sandbox.ExecSpec{Argv: runner.DefaultPaths().Attach(hello), Timeout: sandbox.MaxTimeout})
	if err != nil {
		return nil, nil, err
	}
	link, err := runner.Dial(ctx, process.Stdin, readCloser{process}, hello)
	if err != nil {
		return nil, nil, errors.Join(err, process.Close())
	}
	return link, process, nil
}

// readCloser closes a process's link when its output is closed.
type readCloser struct{ *sandbox.Process }

func (r readCloser) Read(p []byte) (int, error) { return r.Stdout.Read(p) }

func (l *turnLink) read(ctx context.Context) {
	defer close(l.done)
	defer close(l.messages)
	for {
		next, cancel := context.WithTimeoutCause(ctx, linkSilence, errSilent)
		m, err := l.link.Next(next)
		cancel()
		if err != nil {
			l.failed = err
			return
		}
		if err := l.room.Acquire(ctx, weight(m)); err != nil {
			l.failed = err
			return
		}
		select {
		case l.messages <- m:
		case <-ctx.Done():
			l.failed = ctx.Err()
			return
		}
	}
}

// weight is what a message holds of the room for content.
func weight(m runner.Message) int64 {
	n := 0
	switch m := m.(type) {
	case *runner.FileChanged:
		n = len(m.Data)
	case *runner.Segment:
		n = len(m.Data)
	}
	return int64(min(n, linkBytes))
}

var errNoAnswer = errors.New("the runner did not answer in time")

var errSilent = fmt.Errorf("the runner has said nothing for %s", linkSilence)

// take waits for a message, the tick, a change or the end of ctx, and returns all messages
// that are there. What came before the link broke is returned before the error is.
// Calling it says that what it returned before is done with.
func (l *turnLink) take(ctx context.Context, tick <-chan time.Time, change <-chan struct{}) (out []runner.Message, changed bool, err error) {
	l.room.Release(l.held)
	l.held = 0
	defer func() {
		for _, m := range out {
			l.held += weight(m)
		}
	}()
	select {
	case m, ok := <-l.messages:
		if !ok {
			return nil, false, l.err()
		}
		out = append(out, m)
	case <-tick:
		return nil, false, nil
	case <-change:
		return nil, true, nil
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	for len(out) < linkBacklog {
		select {
		case m, ok := <-l.messages:
			if !ok {
				return out, false, nil
			}
			out = append(out, m)
		default:
			return out, false, nil
		}
	}
	return out, false, nil
}

func (l *turnLink) err() error {
	if errors.Is(l.failed, io.EOF) {
		return fmt.Errorf("the link to the runner ended: %w", l.failed)
	}
	return l.failed
}

func (l *turnLink) close() {
	l.cancel()
	l.link.Close() // the agent goes on either way
	<-l.done
	l.process.Close() // only cuts the link
}

// release ends the reading of a link whose turn is over, for others to use it.
func (l *turnLink) release() (*runner.Link, *sandbox.Process) {
	l.cancel()
	<-l.done
	return l.link, l.process
}

// isStale reports whether the runner has heard of a newer attempt at the run.
func isStale(err error) bool {
	refused, ok := errors.AsType[*runner.Error](err)
	return ok && refused.Code == runner.CodeStale
}

// flushed reports whether the runner has said that everything on disk was sent.
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
