package runner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// ErrDisplaced is the end of a link that a newer one has taken over from.
var ErrDisplaced = errors.New("runner: a newer link has taken over")

// errClosed is the end of a link that its owner closed.
var errClosed = errors.New("runner: link is closed")

// Link is a worker's end of an attach. Its methods are safe for concurrent use;
// Next, Detach and Reattach are for one caller at a time.
type Link struct {
	welcome Welcome
	stdin   io.WriteCloser
	stdout  io.ReadCloser

	write    sync.Mutex
	messages chan sized    // a few are in flight while their reader works, of maxUnread together
	unread   atomic.Int64  // bytes of those in messages
	taken    chan struct{} // one was taken out
	readErr  error         // why messages was closed; set before it is
	ended    chan struct{} // closed with messages
	closed   chan struct{}
	close    sync.Once
}

// maxUnread bounds the bytes of messages that are read ahead of Next. One message may have more: it is read
// when no other waits.
const maxUnread = 1 << 20

// sized is a message and the bytes that it had.
type sized struct {
	Message
	bytes int64
}

// Dial opens a link over the stdin and stdout of an exec of Paths.Attach. It
// owns both from then on, also when it fails. An *Error says that the runner
// refused. When ctx ends before the runner has answered, Dial fails with its
// cause; later ctx has no effect.
func Dial(ctx context.Context, stdin io.WriteCloser, stdout io.ReadCloser, hello Hello) (*Link, error) {
	l := &Link{
		stdin: stdin, stdout: stdout,
		messages: make(chan sized, 4), taken: make(chan struct{}, 1), ended: make(chan struct{}), closed: make(chan struct{}),
	}
	go l.read()
	if err := l.greet(ctx, &hello); err != nil {
		return nil, err
	}
	return l, nil
}

// greet says hello and hears the welcome. Where it fails the link is closed.
func (l *Link) greet(ctx context.Context, hello *Hello) error {
	hello.Version = ProtocolVersion
	sent := make(chan error, 1) // the writer never waits for us
	go func() { sent <- l.send(hello) }()
	m, err := l.Next(ctx)
	if err == nil {
		if w, ok := m.(*Welcome); ok {
			l.welcome = *w
			if err = <-sent; err == nil {
				return nil
			}
			_ = l.Close()
			return err
		}
		err = fmt.Errorf("runner answered %T", m)
	}
	_ = l.Close()
	if werr := <-sent; werr != nil && errors.Is(err, io.EOF) {
		err = errors.Join(io.ErrUnexpectedEOF, werr)
	}
	return fmt.Errorf("attach to run %s: %w", hello.Run, err)
}

// Detach ends the service of the link's run and keeps the exec, for Reattach
// within MaxDetached. What was under way is dropped. A link that fails to detach
// is to be closed.
func (l *Link) Detach(ctx context.Context) error {
	if err := l.send(&Detach{}); err != nil {
		return err
	}
	for {
		m, err := l.Next(ctx)
		if err != nil {
			return fmt.Errorf("detach: %w", err)
		}
		if _, ok := m.(*Detached); ok {
			return nil
		}
	}
}

// Reattach opens the next link over the exec of one that was detached, like Dial
// over a new one. Where it fails the link is closed.
func (l *Link) Reattach(ctx context.Context, hello Hello) error { return l.greet(ctx, &hello) }

// Ended reports whether the exec has ended, as far as is known here.
func (l *Link) Ended() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// Welcome is what the runner said when the link was opened, last of all by Reattach.
func (l *Link) Welcome() Welcome { return l.welcome }

// Start asks for the delivery of the run's prompt. A runner that has a journal of
// the run delivers nothing. Either way a DeliveryChanged follows.
func (l *Link) Start(s Start) error { return l.send(&s) }

// Input gives the agent more bytes on its stdin.
func (l *Link) Input(data []byte) error { return l.send(&Input{Data: data}) }

// Interrupt breaks the turn off.
func (l *Link) Interrupt(i Interrupt) error { return l.send(&i) }

// Settle says that the turn has ended, which calls off the kill that an
// interrupt has set. A worker settles every turn whose end it has seen.
func (l *Link) Settle() error { return l.send(&Settle{}) }

// ListFiles answers a welcome that asks for the files that are stored.
func (l *Link) ListFiles(known []session.KnownFile) error { return l.send(&FilesKnown{Files: known}) }

// Flush asks for everything that the transcript files hold, and what has happened
// in the workspace; Flushed with this id comes behind it.
func (l *Link) Flush(id int64) error { return l.send(&Flush{ID: id}) }

// Next returns the next message: *DeliveryChanged, *Frame, *Segment, *Flushed or
// *Alive. It fails with ErrDisplaced or an *Error when the runner ended the
// link, with io.EOF when the exec ended without a word, and with the cause of ctx.
func (l *Link) Next(ctx context.Context) (Message, error) {
	select {
	case m, ok := <-l.messages:
		if !ok {
			return nil, l.readErr
		}
		l.unread.Add(-m.bytes)
		select {
		case l.taken <- struct{}{}:
		default: // the reader has not seen the one before
		}
		return m.Message, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close ends the link; the agent goes on. It may be called twice and while
// another method waits.
func (l *Link) Close() error {
	var err error
	l.close.Do(func() {
		close(l.closed)
		err = errors.Join(l.stdin.Close(), l.stdout.Close())
	})
	for range l.messages { // until the reader has gone
	}
	return err
}

func (l *Link) send(m Message) error {
	l.write.Lock()
	defer l.write.Unlock()
	w := bufio.NewWriter(l.stdin) // one write per small message: an exec's stdin is a request each
	if err := WriteMessage(w, m); err != nil {
		return fmt.Errorf("send to runner: %w", err)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("send to runner: %w", err)
	}
	return nil
}

// admit waits until a message of so many bytes may be read.
func (l *Link) admit(n int64) error {
	for {
		if unread := l.unread.Load(); unread == 0 || unread+n <= maxUnread {
			return nil
		}
		select {
		case <-l.taken:
		case <-l.closed:
			return errClosed
		}
	}
}

func (l *Link) read() {
	defer close(l.messages)
	defer close(l.ended)
	r := bufio.NewReaderSize(l.stdout, 64<<10)
	for {
		m, n, err := readMessage(r, l.admit)
		switch m := m.(type) {
		case *Displaced:
			err = ErrDisplaced
		case *Error:
			err = m
		}
		if err != nil {
			select {
			case <-l.closed:
				err = errClosed
			default:
			}
			l.readErr = err
			return
		}
		l.unread.Add(n)
		select {
		case l.messages <- sized{m, n}:
		case <-l.closed:
			l.readErr = errClosed
			return
		}
	}
}
