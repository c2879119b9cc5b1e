package runner

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/overwinter-dev/overwinter/internal/workspacefile"
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
	messages chan Held    // a few are in flight while their reader works, of maxUnread together
	unread   atomic.Int64 // bytes of those in messages
	memory   Memory       // nil if nothing is reserved
	detached atomic.Bool  // no run is served, so no large message is due
	progress atomic.Int64 // when a message began, was admitted or came, in Unix nanoseconds
	queued   atomic.Bool  // the next message waits for memory
	cancel   context.CancelFunc
	taken    chan struct{} // one was taken out
	readErr  error         // why messages was closed; set before it is
	ended    chan struct{} // closed with messages
	closed   chan struct{}
	close    sync.Once
}

// maxUnread bounds the bytes of messages that are read ahead of Next. One message may have more: it is read
// when no other waits, and when its memory was reserved.
const maxUnread = 1 << 20

// Memory is what all links of a worker reserve the memory of large messages from, before they read them. A
// *semaphore.Weighted is one. It must have MaxLinkMessage at least.
type Memory interface {
	Acquire(ctx context.Context, bytes int64) error
	Release(bytes int64)
}

// Held is a message with the memory that it takes.
type Held struct {
	Message
	Bytes    int64 // that it had on the link
	Reserved int64 // of Memory, to be released by the owner of the message; 0 for a small one
}

// Dial opens a link over the stdin and stdout of an exec of Paths.Attach. It
// owns both from then on, also when it fails. An *Error says that the runner
// refused. When ctx ends before the runner has answered, Dial fails with its
// cause; later ctx has no effect. memory may be nil.
func Dial(ctx context.Context, stdin io.WriteCloser, stdout io.ReadCloser, hello Hello, memory Memory) (*Link, error) {
	l := &Link{
		stdin: stdin, stdout: stdout, memory: memory,
		messages: make(chan Held, 4), taken: make(chan struct{}, 1), ended: make(chan struct{}), closed: make(chan struct{}),
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l.cancel = cancel
	go l.read(life)
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
			l.detached.Store(true)
			return nil
		}
	}
}

// Reattach opens the next link over the exec of one that was detached, like Dial
// over a new one. Where it fails the link is closed.
func (l *Link) Reattach(ctx context.Context, hello Hello) error {
	l.detached.Store(false)
	return l.greet(ctx, &hello)
}

// Ended reports whether the exec has ended, as far as is known here.
func (l *Link) Ended() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// Welcome is the runner's message when the link was opened, or reopened by Reattach.
func (l *Link) Welcome() Welcome { return l.welcome }

// Start asks for the delivery of the run's prompt. A runner that has a journal of
// the run delivers nothing. Either way a DeliveryChanged follows.
func (l *Link) Start(s Start) error { return l.send(&s) }

// Input gives the agent more bytes on its stdin.
func (l *Link) Input(data []byte) error { return l.send(&Input{Data: data}) }

// Steer gives the running turn a prompt, whose id is new to the run or was sent with the same data before.
func (l *Link) Steer(id string, data []byte) error { return l.send(&Steer{ID: id, Data: data}) }

// Interrupt breaks the turn off.
func (l *Link) Interrupt(i Interrupt) error { return l.send(&i) }

// Answer answers the call in a frame.
func (l *Link) Answer(frame int64, answer json.RawMessage) error {
	return l.send(&CallAnswer{Frame: frame, Answer: answer})
}

// Taken says that the frames before next are handled, and that the agent may print window frames from there on. It is for runners whose
// welcome has Window.
func (l *Link) Taken(next, window int64) error { return l.send(&Taken{Next: next, Window: window}) }

// Settle says that the turn has ended, which calls off the kill that an
// interrupt has set. A worker settles every turn whose end it has seen.
func (l *Link) Settle() error { return l.send(&Settle{}) }

// SettleAndFlush is Settle and Flush in one write, which is a request to the provider.
func (l *Link) SettleAndFlush(id int64) error { return l.send(&Settle{}, &Flush{ID: id}) }

// ListFiles answers a welcome that asks for the files that are stored.
func (l *Link) ListFiles(known []workspacefile.Known) error { return l.send(&FilesKnown{Files: known}) }

// Flush asks for everything that the transcript files hold, and for the changes in the workspace;
// Flushed with this id follows it.
func (l *Link) Flush(id int64) error { return l.send(&Flush{ID: id}) }

// Next returns the next message: *DeliveryChanged, *Frame, *Segment, *Flushed or
// *Alive. It fails with ErrDisplaced or an *Error when the runner ended the
// link, with io.EOF when the exec ended without a word, and with the cause of ctx.
func (l *Link) Next(ctx context.Context) (Message, error) {
	held, err := l.NextHeld(ctx)
	l.release(held.Reserved)
	return held.Message, err
}

// NextHeld is Next for a caller that releases the memory of the message itself.
func (l *Link) NextHeld(ctx context.Context) (Held, error) {
	select {
	case m, ok := <-l.messages:
		if !ok {
			return Held{}, l.readErr
		}
		l.unread.Add(-m.Bytes)
		select {
		case l.taken <- struct{}{}:
		default: // the reader has not seen the one before
		}
		return m, nil
	case <-ctx.Done():
		return Held{}, context.Cause(ctx)
	}
}

// Progress is when the link made progress last: a message began, was admitted or came. It is now while a message waits
// for memory, which is not the runner's fault.
func (l *Link) Progress() time.Time {
	if l.queued.Load() {
		return time.Now()
	}
	return time.Unix(0, l.progress.Load())
}

func (l *Link) release(reserved int64) {
	if reserved > 0 {
		l.memory.Release(reserved)
	}
}

// Close ends the link; the agent continues. It may be called twice and while another method waits.
func (l *Link) Close() error {
	var err error
	l.close.Do(func() {
		close(l.closed)
		l.cancel()
		err = errors.Join(l.stdin.Close(), l.stdout.Close())
	})
	for m := range l.messages { // until the reader has gone
		l.release(m.Reserved)
	}
	return err
}

func (l *Link) send(messages ...Message) error {
	l.write.Lock()
	defer l.write.Unlock()
	w := bufio.NewWriter(l.stdin) // one write of what is small: an exec's stdin is a request each
	for _, m := range messages {
		if err := WriteMessage(w, m); err != nil {
			return fmt.Errorf("send to runner: %w", err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("send to runner: %w", err)
	}
	return nil
}

// admit waits until a message may be read, and reserves its memory if it is large.
func (l *Link) admit(ctx context.Context, t messageType, n int64) (reserved int64, err error) {
	l.touch()
	if bound := linkBound(t); n > bound {
		return 0, fmt.Errorf("message of type %d has %d bytes, which exceeds the bound of %d", t, n, bound)
	}
	for {
		if unread := l.unread.Load(); unread == 0 || unread+n <= maxUnread {
			break
		}
		select {
		case <-l.taken:
		case <-l.closed:
			return 0, errClosed
		}
	}
	if n <= maxUnread || l.memory == nil {
		return 0, nil
	}
	if l.detached.Load() {
		return 0, fmt.Errorf("message of %d bytes on a link that serves no run", n)
	}
	l.queued.Store(true)
	err = l.memory.Acquire(ctx, n)
	l.touch()
	l.queued.Store(false)
	if err != nil {
		return 0, errClosed
	}
	return n, nil
}

func (l *Link) touch() { l.progress.Store(time.Now().UnixNano()) }

func (l *Link) read(ctx context.Context) {
	defer close(l.messages)
	defer close(l.ended)
	r := bufio.NewReaderSize(l.stdout, 64<<10)
	for {
		var reserved int64
		m, n, err := readMessage(r, func(t messageType, n int64) (_ bool, err error) {
			reserved, err = l.admit(ctx, t, n)
			return n <= eager || reserved > 0, err
		})
		l.touch()
		switch m := m.(type) {
		case *Displaced:
			err = ErrDisplaced
		case *Error:
			err = m
		}
		if err != nil {
			l.release(reserved)
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
		case l.messages <- Held{Message: m, Bytes: n, Reserved: reserved}:
		case <-l.closed:
			l.release(reserved)
			l.readErr = errClosed
			return
		}
	}
}
