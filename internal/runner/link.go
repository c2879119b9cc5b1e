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

// ErrDisplaced means that a newer link has displaced this one.
var ErrDisplaced = errors.New("runner: a newer link has taken over")

// errClosed means that the link's owner has closed it.
var errClosed = errors.New("runner: link is closed")

// Link is the worker's end of an attach. Its methods are safe for concurrent use; Next, Detach,
// Reattach, Seal and Verify may be called by one goroutine at a time.
type Link struct {
	welcome Welcome
	stdin   io.WriteCloser
	stdout  io.ReadCloser

	write    sync.Mutex
	messages chan Held              // a few messages, of at most maxUnread bytes together, are read ahead
	unread   atomic.Int64           // size of the messages in the channel
	memory   atomic.Pointer[Memory] // nil if no memory is reserved
	detached atomic.Bool            // no run is served, so no large message is expected
	progress atomic.Int64           // time at which a message last began, was admitted or arrived, in Unix nanoseconds
	queued   atomic.Bool            // the next message waits for memory
	cancel   context.CancelFunc
	taken    chan struct{} // signals that a message was taken out
	readErr  error         // why messages was closed; set before it is
	ended    chan struct{} // closed together with messages
	closed   chan struct{}
	close    sync.Once
}

// maxUnread bounds the bytes of messages that are read ahead of Next. A single message may be
// larger: it is read when no other waits, and when its memory is reserved.
const maxUnread = 1 << 20

// linkBuffer is the size of the buffer for the headers and the small messages of a link. Large
// messages bypass the buffer. It is small because a worker has a thousand links, and the data of a
// read is already in memory.
const linkBuffer = 4 << 10

// Memory is the pool from which all links of a worker reserve the memory of large messages before
// they read them, for example a *semaphore.Weighted. It must be at least MaxLinkMessage.
type Memory interface {
	Acquire(ctx context.Context, bytes int64) error
	Release(bytes int64)
}

// Held is a message with its memory reservation.
type Held struct {
	Message
	Bytes    int64 // size of the message on the link
	Reserved int64 // reserved in Memory, to be released by the owner of the message; 0 for a small one
}

// Dial opens a link over the stdin and stdout of an exec of Paths.Attach. It takes ownership of
// both, even if it fails. An *Error means that the runner refused the link. If ctx ends before the
// runner has answered, Dial fails with its cause; afterwards ctx has no effect. memory may be nil.
func Dial(ctx context.Context, stdin io.WriteCloser, stdout io.ReadCloser, hello Hello, memory Memory) (*Link, error) {
	l := open(ctx, stdin, stdout)
	l.Reserve(memory)
	if err := l.greet(ctx, &hello); err != nil {
		return nil, err
	}
	return l, nil
}

// Open returns a detached link over an exec of Paths.AttachNext, which it owns. The first run begins with Reattach.
func Open(ctx context.Context, stdin io.WriteCloser, stdout io.ReadCloser) *Link {
	l := open(ctx, stdin, stdout)
	l.detached.Store(true)
	return l
}

func open(ctx context.Context, stdin io.WriteCloser, stdout io.ReadCloser) *Link {
	l := &Link{
		stdin: stdin, stdout: stdout,
		messages: make(chan Held, 4), taken: make(chan struct{}, 1), ended: make(chan struct{}), closed: make(chan struct{}),
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l.cancel = cancel
	go l.read(life)
	return l
}

// Reserve makes the link reserve memory for the messages that arrive from now on; memory may be nil.
func (l *Link) Reserve(memory Memory) {
	if memory != nil {
		l.memory.Store(&memory)
	}
}

// greet sends the hello and reads the welcome. If it fails, it closes the link.
func (l *Link) greet(ctx context.Context, hello *Hello) error {
	hello.Version = ProtocolVersion
	sent := make(chan error, 1) // so that the writer never waits for us
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

// Detach ends the link's service of its run and keeps the exec for a Reattach within MaxDetached.
// Messages in flight are dropped. If Detach fails, the link must be closed.
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

// Reattach opens the next link over the exec of a detached one, as Dial does over a new one. If it
// fails, it closes the link.
func (l *Link) Reattach(ctx context.Context, hello Hello) error {
	l.detached.Store(false)
	return l.greet(ctx, &hello)
}

// Seal seals the sandbox over a detached link whose welcome has Seals, and passes every message of
// the runner to store in order, as ReadSeal does. The link stays detached. If Seal fails, the link
// must be closed.
func (l *Link) Seal(ctx context.Context, r SealRequest, store func(Message) error) (Seal, error) {
	l.detached.Store(false)
	if err := l.send(&Command{Seal: &r}); err != nil {
		return Seal{}, err
	}
	for {
		held, err := l.NextHeld(ctx)
		if err != nil {
			return Seal{}, fmt.Errorf("read answer of seal: %w", err)
		}
		var answer *Result
		switch m := held.Message.(type) {
		case *Result:
			answer = m
		case *Segment, *FilesBegun, *FileChanged, *FilesBounded, *Diff:
			err = store(m)
		default:
			err = fmt.Errorf("runner answered %T to a seal", m)
		}
		l.release(held.Reserved)
		if err != nil {
			return Seal{}, err
		}
		if answer != nil {
			l.detached.Store(true)
			var seal Seal
			if err := json.Unmarshal(answer.Data, &seal); err != nil {
				return Seal{}, fmt.Errorf("read answer of seal: %w", err)
			}
			return seal, nil
		}
	}
}

// Verify compares the sandbox with a manifest over a detached link. The link stays detached. If
// Verify fails, the link must be closed; the exit code of the exec is that of the command verify.
func (l *Link) Verify(ctx context.Context, r VerifyRequest) (Verification, error) {
	if err := l.send(&Command{Verify: &r}); err != nil {
		return Verification{}, err
	}
	m, err := l.Next(ctx)
	if err != nil {
		return Verification{}, fmt.Errorf("read answer of verify: %w", err)
	}
	answer, ok := m.(*Result)
	if !ok {
		return Verification{}, fmt.Errorf("runner answered %T to a verify", m)
	}
	return parse[Verification]("verify", answer.Data)
}

// Ended reports whether the exec is known to have exited.
func (l *Link) Ended() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// Welcome returns the runner's message from when the link was opened, or reopened by Reattach.
func (l *Link) Welcome() Welcome { return l.welcome }

// Start requests the delivery of the run's prompt. If the runner has a journal of the run, it
// delivers nothing. A DeliveryChanged follows in both cases.
func (l *Link) Start(s Start) error { return l.send(&s) }

// Input writes more bytes to the agent's stdin.
func (l *Link) Input(data []byte) error { return l.send(&Input{Data: data}) }

// Steer adds a prompt to the running turn. Its id must be new to the run, or sent with the same
// data before.
func (l *Link) Steer(id string, data []byte) error { return l.send(&Steer{ID: id, Data: data}) }

// Interrupt aborts the turn.
func (l *Link) Interrupt(i Interrupt) error { return l.send(&i) }

// Answer answers the call in a frame.
func (l *Link) Answer(frame int64, answer json.RawMessage) error {
	return l.send(&CallAnswer{Frame: frame, Answer: answer})
}

// Taken reports that the frames before next are handled, and that the agent may print window frames
// from there. It requires a runner whose welcome has Window.
func (l *Link) Taken(next, window int64) error { return l.send(&Taken{Next: next, Window: window}) }

// Settle reports that the turn has ended, which cancels the kill that an interrupt has scheduled. A
// worker settles every turn whose end it has seen.
func (l *Link) Settle() error { return l.send(&Settle{}) }

// SettleAndFlush is Settle and Flush in one write, because each write is a request to the provider.
func (l *Link) SettleAndFlush(id int64) error { return l.send(&Settle{}, &Flush{ID: id}) }

// ListFiles answers a welcome that requests the list of stored files.
func (l *Link) ListFiles(known []workspacefile.Known) error { return l.send(&FilesKnown{Files: known}) }

// Flush requests the current content of the transcript files, and the changes in the workspace. A
// Flushed with this id follows.
func (l *Link) Flush(id int64) error { return l.send(&Flush{ID: id}) }

// Next returns the next message: *DeliveryChanged, *Frame, *Segment, *Flushed or *Alive. It fails
// with ErrDisplaced or an *Error if the runner ended the link, with io.EOF if the exec exited
// without a last message, and with the cause of ctx.
func (l *Link) Next(ctx context.Context) (Message, error) {
	held, err := l.NextHeld(ctx)
	l.release(held.Reserved)
	return held.Message, err
}

// NextHeld is Next for a caller that itself releases the memory of the message.
func (l *Link) NextHeld(ctx context.Context) (Held, error) {
	select {
	case m, ok := <-l.messages:
		if !ok {
			return Held{}, l.readErr
		}
		l.unread.Add(-m.Bytes)
		select {
		case l.taken <- struct{}{}:
		default: // the reader has not handled the previous signal
		}
		return m, nil
	case <-ctx.Done():
		return Held{}, context.Cause(ctx)
	}
}

// Progress returns when the link last made progress: a message began, was admitted or arrived.
// While a message waits for memory, which is not the runner's fault, it returns the current time.
func (l *Link) Progress() time.Time {
	if l.queued.Load() {
		return time.Now()
	}
	return time.Unix(0, l.progress.Load())
}

func (l *Link) release(reserved int64) {
	if reserved > 0 {
		(*l.memory.Load()).Release(reserved)
	}
}

// Close ends the link; the agent continues. It may be called twice, and while another method waits.
func (l *Link) Close() error {
	var err error
	l.close.Do(func() {
		close(l.closed)
		l.cancel()
		err = errors.Join(l.stdin.Close(), l.stdout.Close())
	})
	for m := range l.messages { // until the reader has returned
		l.release(m.Reserved)
	}
	return err
}

func (l *Link) send(messages ...Message) error {
	l.write.Lock()
	defer l.write.Unlock()
	w := bufio.NewWriter(l.stdin) // one write for small messages, because each write to an exec's stdin is a request
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
	memory := l.memory.Load()
	if n <= maxUnread || memory == nil {
		return 0, nil
	}
	if l.detached.Load() {
		return 0, fmt.Errorf("message of %d bytes on a link that serves no run", n)
	}
	l.queued.Store(true)
	err = (*memory).Acquire(ctx, n)
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
	r := bufio.NewReaderSize(l.stdout, linkBuffer)
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
