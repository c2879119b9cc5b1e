package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// answering serves one connection in place of a runner.
func answering(t *testing.T, serve func(*net.UnixConn) error) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "owc") //nolint:usetesting // the path of a socket is at most 107 bytes, too short for the name of a test
	require.NoError(t, err)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: runner.SocketPath(dir), Net: "unix"})
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		conn, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		defer conn.Close()
		if err := serve(conn); err != nil {
			t.Errorf("in the place of the runner: %v", err)
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
		require.NoError(t, os.RemoveAll(dir))
	})
	return dir
}

// replies reads one message and answers it.
func replies(answers ...runner.Message) func(*net.UnixConn) error {
	return func(conn *net.UnixConn) error {
		if _, err := runner.ReadMessage(conn); err != nil {
			return err
		}
		var b bytes.Buffer
		for _, m := range answers {
			if err := runner.WriteMessage(&b, m); err != nil {
				return err
			}
		}
		_, err := conn.Write(b.Bytes())
		return err
	}
}

func requireExit(t *testing.T, code int, err error) {
	t.Helper()
	exit, ok := errors.AsType[*ExitError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, code, exit.ExitCode)
}

func TestPingPrintsAnswer(t *testing.T) {
	t.Parallel()
	dir := answering(t, replies(&runner.Result{Data: []byte(`{"pid":7}`)}))
	var stdout bytes.Buffer
	require.NoError(t, Ping(t.Context(), dir, strings.NewReader(`{"token":"x","wait":1000000000}`), &stdout))
	require.Equal(t, `{"pid":7}`+"\n", stdout.String())
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for code, want := range map[runner.Code]int{
		runner.CodeToken: runner.ExitRefused, runner.CodeVersion: runner.ExitRefused,
		runner.CodeStale: runner.ExitRefused, runner.CodeInvalid: runner.ExitRefused,
	} {
		dir := answering(t, replies(&runner.Error{Code: code, Message: "why"}))
		err := Abort(t.Context(), dir, "run_1", strings.NewReader(`{"run":"run_1","interrupt":{"grace":0}}`), io.Discard)
		requireExit(t, want, err)
		require.ErrorContains(t, err, "why")
	}
	dir := answering(t, replies(&runner.Error{Code: runner.CodeIncomplete, Message: "why"}))
	err := Seal(t.Context(), dir, strings.NewReader(`{}`), io.Discard)
	_, coded := errors.AsType[*ExitError](err)
	require.False(t, coded, "a seal that failed was not refused")
	refusal, ok := errors.AsType[*runner.Error](err)
	require.True(t, ok)
	require.Equal(t, runner.CodeIncomplete, refusal.Code)
}

func TestRequestMustBeReadable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	requireExit(t, runner.ExitUsage, Ping(t.Context(), dir, strings.NewReader(`{`), io.Discard))
	requireExit(t, runner.ExitUsage, Seal(t.Context(), dir, strings.NewReader(``), io.Discard))
	requireExit(t, runner.ExitUsage, Verify(t.Context(), strings.NewReader(`[]`), io.Discard))
	requireExit(t, runner.ExitUsage, Abort(t.Context(), dir, "run_1", strings.NewReader(`{"run":"run_2"}`), io.Discard))
}

func TestInvalidResponse(t *testing.T) {
	t.Parallel()
	dir := answering(t, replies(&runner.Settle{}))
	require.ErrorContains(t, Ping(t.Context(), dir, strings.NewReader(`{}`), io.Discard), "runner answered *runner.Settle")
	dir = answering(t, replies())
	require.ErrorContains(t, Ping(t.Context(), dir, strings.NewReader(`{}`), io.Discard), "read answer: EOF")
	dir = answering(t, replies(&runner.Alive{}))
	require.ErrorContains(t, Seal(t.Context(), dir, strings.NewReader(`{}`), io.Discard), "runner answered *runner.Alive")
}

// TestCommandWaitsForStartingRunner checks that a command waits while the socket of an earlier
// runner refuses connections, until the new one listens.
func TestCommandWaitsForStartingRunner(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "owc") //nolint:usetesting // the path of a socket is at most 107 bytes, too short for the name of a test
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	_, err = dial(t.Context(), dir, 0)
	requireExit(t, runner.ExitNoRunner, err)
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: runner.SocketPath(dir), Net: "unix"})
	require.NoError(t, err)
	stale.SetUnlinkOnClose(false)
	require.NoError(t, stale.Close())
	_, err = dial(t.Context(), dir, 0)
	requireExit(t, runner.ExitNoRunner, err)

	dialed := make(chan error, 1)
	go func() {
		conn, err := dial(t.Context(), dir, 2*time.Minute)
		if err == nil {
			err = conn.Close()
		}
		dialed <- err
	}()
	require.NoError(t, os.Remove(runner.SocketPath(dir)))
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: runner.SocketPath(dir), Net: "unix"})
	require.NoError(t, err)
	defer listener.Close()
	require.NoError(t, <-dialed)

	// A file that is not a socket never becomes one.
	file := t.TempDir()
	require.NoError(t, os.MkdirAll(runner.SocketPath(file), 0o700))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = dial(ctx, file, time.Hour)
	requireExit(t, runner.ExitNoRunner, err)
}

func TestHelloMustMatchCommandLine(t *testing.T) {
	t.Parallel()
	for _, hello := range []runner.Message{&runner.Hello{Run: "run_2"}, &runner.Hello{Run: "run_1", From: 3}, &runner.Settle{}} {
		requireExit(t, runner.ExitRefused, Attach(t.Context(), t.TempDir(), "run_1", 0, bytes.NewReader(messages(t, hello)), io.Discard))
	}
	require.ErrorIs(t, Attach(t.Context(), t.TempDir(), "run_1", 0, strings.NewReader(""), io.Discard), io.EOF)
	require.ErrorContains(t, Attach(t.Context(), t.TempDir(), "run_1", 0, strings.NewReader("garbage"), io.Discard), "read hello: ")
}

// TestEndOfLinkIsExitOfAttach checks that attach forwards the last message and exits with
// its code.
func TestEndOfLinkIsExitOfAttach(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		last runner.Message
		code int
	}{
		"displaced": {&runner.Displaced{}, runner.ExitDisplaced},
		"refused":   {&runner.Error{Code: runner.CodeStale, Message: "why"}, runner.ExitRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := answering(t, replies(&runner.Welcome{LastFrame: 4}, c.last))
			stdin, worker := io.Pipe()
			defer worker.Close()
			go func() { _ = runner.WriteMessage(worker, &runner.Hello{Run: "run_1"}) }()
			var stdout bytes.Buffer
			requireExit(t, c.code, Attach(t.Context(), dir, "run_1", 0, stdin, &stdout))
			require.Equal(t, messages(t, &runner.Welcome{LastFrame: 4}, c.last), stdout.Bytes())
		})
	}
}

// TestBrokenDirectLink checks a runner that writes to the worker itself and exits without a
// last message.
func TestBrokenDirectLink(t *testing.T) {
	t.Parallel()
	dir := answering(t, replies(&runner.Direct{}))
	stdin, worker := io.Pipe()
	defer worker.Close()
	go func() { _ = runner.WriteMessage(worker, &runner.Hello{Run: "run_1"}) }()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	err = Attach(t.Context(), dir, "run_1", 0, stdin, w)
	require.ErrorContains(t, err, "read from runner: ")
}

// TestAttachEndsWithItsWorker checks a link that the runner has closed while nothing
// reads the output of attach.
func TestAttachEndsWithItsWorker(t *testing.T) {
	t.Parallel()
	dir := answering(t, replies(&runner.Welcome{}, &runner.Segment{Data: make([]byte, 1<<20)}))
	stdin, worker := io.Pipe()
	defer worker.Close()
	go func() { _ = runner.WriteMessage(worker, &runner.Hello{Run: "run_1"}) }()
	r, stdout := io.Pipe() // has no reader
	defer r.Close()
	require.ErrorContains(t, Attach(t.Context(), dir, "run_1", 0, stdin, stdout), "before its output was read")
}
