package supervisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/workspace"
)

const (
	// dialBudget is how long a command waits for a runner that is starting.
	dialBudget = 5 * time.Second
	dialPause  = 5 * time.Millisecond
	// hangBudget is how long attach tries to hand over what it has read when the
	// runner has closed the link: its worker may be gone without a trace.
	hangBudget = 2 * time.Second
)

// ExitError is a failure with the exit code that tells its kind.
type ExitError struct {
	ExitCode int
	Err      error
}

func (e *ExitError) Error() string { return e.Err.Error() }

func (e *ExitError) Unwrap() error { return e.Err }

// dial connects to the runner of a state directory, waiting for one that is on
// its way up.
func dial(ctx context.Context, dir string, wait time.Duration) (*net.UnixConn, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: SocketPath(dir), Net: "unix"})
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED) {
			return nil, &ExitError{runner.ExitNoRunner, err}
		}
		select {
		case <-ctx.Done():
			return nil, &ExitError{runner.ExitNoRunner, err}
		case <-time.After(dialPause):
		}
	}
}

// refusal turns the runner's last word into an exit code.
func refusal(e *runner.Error) error {
	switch e.Code {
	case runner.CodeToken, runner.CodeVersion, runner.CodeStale, runner.CodeInvalid:
		return &ExitError{runner.ExitRefused, e}
	default:
		return e
	}
}

// Attach carries messages between a worker and the runner until either ends.
// run and from are what the command line says; the hello must say the same.
func Attach(ctx context.Context, dir, run string, from int64, stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewReaderSize(stdin, 64<<10)
	first, err := runner.ReadMessage(in)
	if err != nil {
		return fmt.Errorf("read hello: %w", err)
	}
	hello, ok := first.(*runner.Hello)
	if !ok || hello.Run != run || hello.From != from {
		return &ExitError{runner.ExitRefused, errors.New("the hello on stdin is not of the run and frame on the command line")}
	}
	conn, err := dial(ctx, dir, dialBudget)
	if err != nil {
		return err
	}
	defer func() {
		_ = errors.Join(conn.CloseRead(), conn.CloseWrite()) // ends awaitHangup, for which Close would wait
		_ = conn.Close()
	}()
	w := bufio.NewWriter(conn)
	if err := errors.Join(runner.WriteMessage(w, hello), w.Flush()); err != nil {
		return fmt.Errorf("send hello: %w", err)
	}
	go func() {
		_, _ = io.Copy(conn, in) // both ends tell the other by closing
		_ = conn.CloseWrite()
	}()
	bridged := make(chan error, 1)
	go func() { bridged <- bridge(ctx, dir, conn, stdout) }()
	hung := make(chan struct{})
	go func() {
		awaitHangup(conn)
		close(hung)
	}()
	select {
	case err := <-bridged:
		return err
	case <-hung:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-bridged:
		return err
	case <-time.After(hangBudget):
		return errors.New("the runner closed the link, and nobody reads what it sent")
	}
}

// bridge copies messages from the runner to the worker, puts diffs where they are
// asked for, and looks out for the one that ends the link.
func bridge(ctx context.Context, dir string, conn io.Reader, stdout io.Writer) error {
	r, w := bufio.NewReaderSize(conn, 64<<10), bufio.NewWriterSize(stdout, 64<<10)
	for {
		m, err := runner.ReadMessage(r)
		if errors.Is(err, io.EOF) {
			return w.Flush()
		} else if err != nil {
			return fmt.Errorf("read from runner: %w", err)
		}
		if survey, ok := m.(*runner.Survey); ok {
			diff, err := workspace.TakeDiff(ctx, survey.Workspace, filesDir(dir), survey.Key)
			if err != nil {
				fmt.Fprintln(os.Stderr, "overwinter-runner: no diff of the workspace:", err)
				continue
			}
			m = &runner.Diff{WorkspaceDiff: diff}
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

// awaitHangup returns when the peer has closed the connection, whether or not
// what it sent before has been read.
func awaitHangup(conn *net.UnixConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		for {
			fds := []unix.PollFd{{Fd: int32(fd)}} // hang-ups are reported without asking
			if _, err := unix.Poll(fds, -1); errors.Is(err, unix.EINTR) {
				continue
			} else if err != nil || fds[0].Revents != 0 {
				return
			}
		}
	})
}

// command sends a command, hands what comes before its result to each, and
// returns the result.
func command(ctx context.Context, dir string, wait time.Duration, c *runner.Command, each func(runner.Message) error) ([]byte, error) {
	conn, err := dial(ctx, dir, wait)
	if err != nil {
		return nil, err
	}
	defer conn.Close() // the answer has been read
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	c.Version = runner.ProtocolVersion
	w := bufio.NewWriter(conn)
	if err := errors.Join(runner.WriteMessage(w, c), w.Flush()); err != nil {
		return nil, fmt.Errorf("send command: %w", err)
	}
	r := bufio.NewReaderSize(conn, 64<<10)
	for {
		m, err := runner.ReadMessage(r)
		if err != nil {
			return nil, fmt.Errorf("read answer: %w", err)
		}
		switch m := m.(type) {
		case *runner.Result:
			return m.Data, nil
		case *runner.Error:
			return nil, refusal(m)
		default:
			if err := each(m); err != nil {
				return nil, err
			}
		}
	}
}

func nothingElse(m runner.Message) error { return fmt.Errorf("runner answered %T", m) }

// request reads the JSON on a command's stdin. It does not wait for its end.
func request(stdin io.Reader, into any) error {
	if err := json.NewDecoder(stdin).Decode(into); err != nil {
		return &ExitError{runner.ExitUsage, fmt.Errorf("read request: %w", err)}
	}
	return nil
}

// PingCommand asks the runner what it does.
func PingCommand(ctx context.Context, dir string, stdin io.Reader, stdout io.Writer) error {
	var r runner.PingRequest
	if err := request(stdin, &r); err != nil {
		return err
	}
	data, err := command(ctx, dir, r.Wait, &runner.Command{Token: r.Token, Ping: true}, nothingElse)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s\n", data)
	return err
}

// AbortCommand breaks off the turn of a run.
func AbortCommand(ctx context.Context, dir, run string, stdin io.Reader, stdout io.Writer) error {
	var r runner.AbortRequest
	if err := request(stdin, &r); err != nil {
		return err
	}
	if r.Run != run {
		return &ExitError{runner.ExitUsage, errors.New("the request on stdin is not of the run on the command line")}
	}
	c := &runner.Command{Token: r.Token, Abort: &r}
	data, err := command(ctx, dir, dialBudget, c, nothingElse)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s\n", data)
	return err
}

// SealCommand seals the sandbox and prints what the worker does not have, and
// the manifest.
func SealCommand(ctx context.Context, dir string, stdin io.Reader, stdout io.Writer) error {
	var r runner.SealRequest
	if err := request(stdin, &r); err != nil {
		return err
	}
	out := bufio.NewWriterSize(stdout, 64<<10)
	lines := json.NewEncoder(out)
	data, err := command(ctx, dir, dialBudget, &runner.Command{Token: r.Token, Seal: &r}, func(m runner.Message) error {
		line, err := sealLine(m)
		if err != nil {
			return err
		}
		return lines.Encode(line)
	})
	if err != nil {
		return errors.Join(err, out.Flush())
	}
	var s sealed
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	m, err := takeManifest(ctx, s.Files, r.Workspace)
	if err != nil {
		return errors.Join(fmt.Errorf("take manifest: %w", err), out.Flush())
	}
	if s.DiffKey != "" {
		diff, err := workspace.TakeDiff(ctx, r.Workspace, filesDir(dir), s.DiffKey)
		if err == nil {
			err = lines.Encode(runner.SealLine{Diff: &runner.Diff{WorkspaceDiff: diff}})
		} else {
			fmt.Fprintln(os.Stderr, "overwinter-runner: no diff of the workspace:", err)
			err = nil // the one before stays: no snapshot fails for it
		}
		if err != nil {
			return errors.Join(err, out.Flush())
		}
	}
	err = lines.Encode(runner.SealLine{Seal: &runner.Seal{Manifest: m, Run: s.Run, LastFrame: s.LastFrame}})
	return errors.Join(err, out.Flush())
}

func sealLine(m runner.Message) (runner.SealLine, error) {
	switch m := m.(type) {
	case *runner.Segment:
		return runner.SealLine{Segment: m}, nil
	case *runner.FilesBegun:
		return runner.SealLine{Begun: m}, nil
	case *runner.FileChanged:
		return runner.SealLine{Changed: m}, nil
	case *runner.FilesBounded:
		return runner.SealLine{Bounded: m}, nil
	}
	return runner.SealLine{}, nothingElse(m)
}
