package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/rawio"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/workspace"
)

// hangBudget bounds the time for writing the remaining messages after the runner has closed the
// link, because the worker may have disappeared.
const hangBudget = 2 * time.Second

// awaitDetached bounds how long the runner takes to detach a direct link: it completes the message
// in progress.
const awaitDetached = runner.PartingBudget + time.Second

// Attach forwards messages between a worker and the runner: one link after the other, each from a
// hello to its end. While no link is open, it executes seals and comparisons. run and from are the
// values of the command line; the first hello must match them, unless run is empty.
func Attach(ctx context.Context, dir, run string, from int64, stdin io.Reader, stdout io.Writer) error {
	a := &attachment{dir: dir, stdin: make(chan runner.Message), stdinErr: make(chan error, 1), shared: rawio.Unblock(stdout)}
	if a.shared != nil {
		defer a.shared.Close()
		stdout = a.shared
	}
	a.stdout = bufio.NewWriterSize(stdout, 64<<10)
	if pipe := rawio.Unblock(stdin); pipe != nil {
		defer pipe.Close() // opened only for reading
		stdin = rawio.NewReader(pipe)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go a.listen(ctx, bufio.NewReaderSize(stdin, 64<<10))
	var limit <-chan time.Time
	if run == "" { // the worker may never need it
		timer := time.NewTimer(runner.MaxDetached)
		defer timer.Stop()
		limit = timer.C
	}
	hello, err := a.hello(ctx, limit)
	if err != nil || hello == nil {
		return err
	}
	if run != "" && (hello.Run != run || hello.From != from) {
		return &ExitError{runner.ExitRefused, errors.New("the hello on stdin is not of the run and frame on the command line")}
	}
	for {
		detached, err := a.link(ctx, hello)
		if err != nil || !detached {
			return err
		}
		if err := errors.Join(runner.WriteMessage(a.stdout, &runner.Detached{}), a.stdout.Flush()); err != nil {
			return fmt.Errorf("write to worker: %w", err)
		}
		timeout := time.NewTimer(runner.MaxDetached)
		hello, err = a.hello(ctx, timeout.C)
		timeout.Stop()
		if err != nil || hello == nil {
			return err
		}
	}
}

// attachment is one exec of attach.
type attachment struct {
	dir      string
	stdin    chan runner.Message // from the worker; closed at its end
	stdinErr chan error          // why stdin was closed, unless it ended
	stdout   *bufio.Writer       // used by one goroutine at a time
	shared   *os.File            // stdout, if it can be passed on to the runner
}

// listen reads messages of the worker.
func (a *attachment) listen(ctx context.Context, r io.Reader) {
	defer close(a.stdin)
	for {
		m, err := runner.ReadMessage(r)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				a.stdinErr <- err
			}
			return
		}
		select {
		case a.stdin <- m:
		case <-ctx.Done():
			return
		}
	}
}

// hello waits for the worker to begin a link, and executes its commands meanwhile. It returns nil if no
// hello arrives in time, or if the worker has disconnected.
func (a *attachment) hello(ctx context.Context, timeout <-chan time.Time) (*runner.Hello, error) {
	select {
	case m, ok := <-a.stdin:
		switch m := m.(type) {
		case *runner.Hello:
			return m, nil
		case *runner.Command:
			if err := a.execute(ctx, m); err != nil {
				return nil, err
			}
			return a.hello(ctx, timeout)
		}
		if ok {
			return nil, &ExitError{runner.ExitRefused, fmt.Errorf("a link cannot begin with %T", m)}
		}
		select {
		case err := <-a.stdinErr:
			return nil, fmt.Errorf("read hello: %w", err)
		default:
		}
		if timeout == nil {
			return nil, fmt.Errorf("read hello: %w", io.EOF)
		}
		return nil, nil
	case <-timeout:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// execute executes a command of the worker.
func (a *attachment) execute(ctx context.Context, c *runner.Command) error {
	switch {
	case c.Seal != nil:
		return a.seal(ctx, *c.Seal)
	case c.Verify != nil:
		v, err := verification(ctx, *c.Verify)
		if err != nil {
			return err // the exit code is that of the command verify
		}
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return errors.Join(runner.WriteMessage(a.stdout, &runner.Result{Data: data}), a.stdout.Flush())
	}
	return &ExitError{runner.ExitRefused, errors.New("a link accepts no commands but seal and verify")}
}

// seal executes a seal of the worker. It answers an error with a last message.
func (a *attachment) seal(ctx context.Context, r runner.SealRequest) error {
	s, err := seal(ctx, a.dir, r, func(m runner.Message) error { return runner.WriteMessage(a.stdout, m) })
	var answer runner.Message
	if err == nil {
		var data []byte
		if data, err = json.Marshal(s); err == nil {
			answer = &runner.Result{Data: data}
		}
	}
	if err != nil {
		refused, ok := errors.AsType[*runner.Error](err)
		if !ok {
			refused = &runner.Error{Code: runner.CodeIncomplete, Message: err.Error()}
		}
		answer = refused
	}
	return errors.Join(err, runner.WriteMessage(a.stdout, answer), a.stdout.Flush())
}

// link forwards the messages of one link until either end closes it, or the worker detaches it.
func (a *attachment) link(ctx context.Context, hello *runner.Hello) (detached bool, err error) {
	conn, err := dial(ctx, a.dir, dialBudget)
	if err != nil {
		return false, err
	}
	hangUp := sync.OnceFunc(func() {
		_ = errors.Join(conn.CloseRead(), conn.CloseWrite()) // ends awaitHangup, for which Close would wait
		_ = conn.Close()
	})
	defer hangUp()
	if err := greet(conn, hello, a.shared); err != nil {
		return false, fmt.Errorf("send hello: %w", err)
	}
	l := &passage{attachment: a, w: bufio.NewWriter(rawio.NewConn(conn)), known: make(chan struct{})}
	detach, done := make(chan struct{}), make(chan struct{})
	defer close(done)
	go func() {
		switch {
		case !l.forward(done):
			_ = conn.CloseWrite() // both ends signal it by closing
		case l.detaches(): // the runner answers after its last message
			awaited := time.AfterFunc(awaitDetached, hangUp)
			<-done
			awaited.Stop()
		default:
			close(detach)
		}
	}()
	bridged := make(chan error, 1)
	go func() { bridged <- l.bridge(ctx, conn) }()
	hung := make(chan struct{})
	go func() {
		awaitHangup(conn)
		close(hung)
	}()
	ended := func(err error) (bool, error) {
		if errors.Is(err, errDetached) {
			return true, nil
		}
		return false, err
	}
	select {
	case err := <-bridged:
		return ended(err)
	case <-detach:
		hangUp()
		err := <-bridged // the worker reads until it has its answer
		if _, ended := errors.AsType[*ExitError](err); ended {
			return false, err
		}
		return true, nil
	case <-hung:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	select {
	case err := <-bridged:
		return ended(err)
	case <-time.After(hangBudget):
		return false, errors.New("the runner closed the link before its output was read")
	}
}

// passage is one link of an attachment.
type passage struct {
	*attachment
	direct bool          // the runner writes to stdout itself; set before known is closed
	asked  atomic.Bool   // the runner was asked to detach
	known  chan struct{} // closed once direct is known

	mu sync.Mutex
	w  *bufio.Writer // to the runner
}

// errDetached is the result of bridge when the runner has detached a direct link.
var errDetached = errors.New("the link is detached")

// detaches asks the runner to detach the link, if it is direct.
func (l *passage) detaches() bool {
	<-l.known
	if !l.direct {
		return false
	}
	l.asked.Store(true)
	return l.send(&runner.Detach{}) == nil
}

// send sends a message to the runner.
func (l *passage) send(m runner.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(runner.WriteMessage(l.w, m), l.w.Flush())
}

// forward forwards messages of the worker and reports whether it detaches the link. It returns when
// the worker or the link ends.
func (l *passage) forward(done <-chan struct{}) (detach bool) {
	for {
		select {
		case m, ok := <-l.stdin:
			if !ok {
				return false
			}
			if _, detach := m.(*runner.Detach); detach {
				return true
			}
			if l.send(m) != nil {
				return false // the runner has exited, which the end of the link reveals
			}
		case <-done:
			return false
		}
	}
}

// bridge copies messages from the runner to the worker, takes the requested diffs, and recognizes
// the message that ends the link. When it returns, every message that it has begun to write is
// complete. In a direct link the runner writes the messages itself, and receives the diffs.
func (l *passage) bridge(ctx context.Context, conn io.Reader) error {
	r, w := bufio.NewReaderSize(conn, 64<<10), l.stdout
	m, err := runner.ReadMessage(r)
	_, l.direct = m.(*runner.Direct)
	close(l.known)
	if l.direct {
		return l.control(ctx, r)
	}
	for ; ; m, err = runner.ReadMessage(r) {
		if errors.Is(err, io.EOF) {
			return w.Flush()
		} else if err != nil {
			return errors.Join(fmt.Errorf("read from runner: %w", err), w.Flush())
		}
		if survey, ok := m.(*runner.Survey); ok {
			if m = l.diff(ctx, survey); m == nil {
				continue
			}
		}
		if err := runner.WriteMessage(w, m); err != nil {
			return fmt.Errorf("write to worker: %w", err)
		}
		if r.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return fmt.Errorf("write to worker: %w", err)
			}
		}
		switch m := m.(type) {
		case *runner.Displaced:
			return errors.Join(w.Flush(), &ExitError{runner.ExitDisplaced, runner.ErrDisplaced})
		case *runner.Error:
			return errors.Join(w.Flush(), refusal(m))
		}
	}
}

// control handles the runner's messages to the attach of a direct link.
func (l *passage) control(ctx context.Context, r *bufio.Reader) error {
	for {
		m, err := runner.ReadMessage(r)
		if err != nil { // without a last message, the runner may have been in the middle of a message to the worker
			return fmt.Errorf("read from runner: %w", err)
		}
		switch m := m.(type) {
		case *runner.Survey:
			answer := l.diff(ctx, m)
			if answer == nil {
				answer = &runner.NoDiff{}
			}
			if err := l.send(answer); err != nil {
				return fmt.Errorf("send the diff: %w", err)
			}
		case *runner.Detached:
			if !l.asked.Load() {
				return nil // the worker has disconnected
			}
			return errDetached
		case *runner.Displaced:
			return &ExitError{runner.ExitDisplaced, runner.ErrDisplaced}
		case *runner.Error:
			return refusal(m)
		default:
			return fmt.Errorf("the runner said %T to attach", m)
		}
	}
}

// diff takes the diff that the runner requests. It returns nil if it cannot take one.
func (l *passage) diff(ctx context.Context, survey *runner.Survey) runner.Message {
	diff, err := workspace.TakeDiff(ctx, survey.Workspace, runner.IndexDir(l.dir), survey.Key)
	if err != nil {
		fmt.Fprintln(os.Stderr, "overwinter-runner: no diff of the workspace:", err)
		return nil
	}
	return &runner.Diff{Diff: diff}
}

// awaitHangup returns when the peer has closed the connection, whether or not its earlier messages
// have been read.
func awaitHangup(conn *net.UnixConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		for {
			fds := []unix.PollFd{{Fd: int32(fd)}} // hang-ups are always reported
			if _, err := unix.Poll(fds, -1); errors.Is(err, unix.EINTR) {
				continue
			} else if err != nil || fds[0].Revents != 0 {
				return
			}
		}
	})
}
