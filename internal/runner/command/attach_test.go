package command

import (
	"bufio"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

func TestDetachedExecDoesNotWaitForever(t *testing.T) {
	t.Parallel()
	stdin, worker := io.Pipe()
	a := &attachment{stdin: make(chan runner.Message), stdinErr: make(chan error, 1)}
	go a.listen(t.Context(), bufio.NewReader(stdin))
	done := make(chan time.Time)
	close(done)
	hello, err := a.hello(t.Context(), done)
	require.NoError(t, err)
	require.Nil(t, hello)

	never := make(chan time.Time)
	go func() { _ = runner.WriteMessage(worker, &runner.Hello{Run: "run_1"}) }()
	hello, err = a.hello(t.Context(), never)
	require.NoError(t, err)
	require.Equal(t, "run_1", hello.Run)

	go func() { _ = runner.WriteMessage(worker, &runner.Settle{}) }()
	_, err = a.hello(t.Context(), never)
	require.ErrorContains(t, err, "cannot begin with")

	require.NoError(t, worker.Close())
	hello, err = a.hello(t.Context(), never)
	require.NoError(t, err)
	require.Nil(t, hello, "the worker has gone")
}

// TestAttachCopiesForEarlierRunner checks a runner of an earlier release, which ignores the
// stdout that attach passes on and whose first message is the welcome.
func TestAttachCopiesForEarlierRunner(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: runner.SocketPath(dir), Net: "unix"})
	require.NoError(t, err)
	defer listener.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := listener.AcceptUnix()
		if err != nil {
			served <- err
			return
		}
		defer conn.Close()
		if _, err = runner.ReadMessage(conn); err == nil {
			err = runner.WriteMessage(conn, &runner.Welcome{Version: runner.ProtocolVersion, LastFrame: 7})
		}
		if err == nil {
			_, err = runner.ReadMessage(conn) // attach closes the connection when the worker detaches
		}
		served <- err
	}()
	stdin, toAttach := io.Pipe()
	fromAttach, stdout, err := os.Pipe()
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		ended <- Attach(t.Context(), dir, "run_1", 0, stdin, stdout)
		_ = stdout.Close()
	}()
	link, err := runner.Dial(t.Context(), toAttach, fromAttach, runner.Hello{Run: "run_1"}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 7, link.Welcome().LastFrame)
	require.NoError(t, link.Detach(t.Context()))
	require.ErrorIs(t, <-served, io.EOF)
	require.NoError(t, link.Close())
	require.NoError(t, <-ended)
}
