package child

import (
	"bufio"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stray starts a process without a supervisor, and returns how it ended.
func stray(t *testing.T, script string) (record, <-chan error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	started, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = started.Read(make([]byte, 1)) // the script reports that it runs
	require.NoError(t, err)
	r, err := recordOf(cmd.Process.Pid, syscall.SIGTERM)
	require.NoError(t, err)
	ended := make(chan error, 1) // so that the goroutine ends without a receiver
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	return r, ended
}

// An ending process loses its executable before its files. A process of which only the first thread
// has ended stays in that state.
func TestWaitsForPortsOfEndedProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "headless")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1) // so that the goroutine ends without a receiver
	address, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	r, err := recordOf(cmd.Process.Pid, syscall.SIGTERM)
	require.NoError(t, err)
	require.NoError(t, r.write(recordPath(dir, "one")))
	_, err = stdin.Write([]byte{'\n'})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !r.running() }, 2*time.Minute, time.Millisecond)
	_, err = net.Listen("tcp", strings.TrimSpace(address))
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	go func() { ended <- cmd.Wait() }()

	require.NoError(t, EndLeftovers(t.Context(), dir, quiet()))
	listener, err := net.Listen("tcp", strings.TrimSpace(address))
	require.NoError(t, err, "the port is free")
	require.NoError(t, listener.Close())
	require.Error(t, <-ended)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestEndsLeftoversOfEarlierRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, ended := stray(t, "echo; while :; do sleep 0.01; done")
	require.True(t, r.running())
	require.NoError(t, r.write(recordPath(dir, "one")))

	require.NoError(t, EndLeftovers(t.Context(), dir, quiet()))
	require.EqualError(t, <-ended, "signal: terminated")
	require.False(t, r.running())
	require.NoFileExists(t, recordPath(dir, "one"))
}

func TestUnrelatedProcessesAreKept(t *testing.T) {
	t.Parallel()
	r, ended := stray(t, "echo; while :; do sleep 0.01; done")
	for name, change := range map[string]func(*record){
		"another start":      func(r *record) { r.StartTicks++ },
		"another boot":       func(r *record) { r.BootID = "other" },
		"another executable": func(r *record) { r.Executable = "/bin/other" },
	} {
		dir, other := t.TempDir(), r
		change(&other)
		require.NoError(t, other.write(recordPath(dir, "one")))
		require.NoError(t, EndLeftovers(t.Context(), dir, quiet()))
		require.NoFileExists(t, recordPath(dir, "one"), name)
		require.True(t, r.running(), name)
	}
	select {
	case err := <-ended:
		require.Fail(t, "the process was ended", "%v", err)
	default:
	}
}

func TestUnreadableRecordsAreRemoved(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "one.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"pid": 1`), 0o600))
	require.NoError(t, EndLeftovers(t.Context(), filepath.Dir(path), quiet()))
	require.NoFileExists(t, path)
}
