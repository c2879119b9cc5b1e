package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

const (
	// dialBudget is how long a command waits for a runner that is starting.
	dialBudget = 5 * time.Second
	dialPause  = time.Millisecond // a wake waits for it
)

// dial connects to the runner of a state directory. It waits for a runner that is starting.
func dial(ctx context.Context, dir string, wait time.Duration) (*net.UnixConn, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: runner.SocketPath(dir), Net: "unix"})
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

// call sends a command, passes the messages before its result to each, and returns the result.
func call(ctx context.Context, dir string, wait time.Duration, c *runner.Command, each func(runner.Message) error) ([]byte, error) {
	conn, err := dial(ctx, dir, wait)
	if err != nil {
		return nil, err
	}
	defer conn.Close() // the answer has already been read
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
