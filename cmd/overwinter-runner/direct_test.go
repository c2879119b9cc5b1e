package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/command"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// switches counts the voluntary context switches of a process's threads.
func switches(t *testing.T, pid int) int {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	require.NoError(t, err)
	total := 0
	for _, name := range threads {
		status, err := os.ReadFile(name)
		require.NoError(t, err)
		for line := range strings.Lines(string(status)) {
			if count, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
				n, err := strconv.Atoi(strings.TrimSpace(count))
				require.NoError(t, err)
				total += n
			}
		}
	}
	return total
}

// TestLineWakesRunnerOnly checks that the runner waits about once for each separate line, and
// that the link's attach is not woken by lines. With ordinary system calls and copies by attach
// there were about eleven waits per line.
func TestLineWakesRunnerOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", echo, "one\n")
	w.line("got one")
	const lines = 500
	serve, attach := b.serve.Process.Pid, w.cmd.Process.Pid
	// The agent reads a FIFO, so that nothing passes through attach in the other direction.
	fifo := filepath.Join(b.paths.Workspace, "fifo")
	require.NoError(t, exec.CommandContext(t.Context(), "mkfifo", fifo).Run())
	require.NoError(t, w.Detach(t.Context()))
	require.NoError(t, w.Reattach(t.Context(), runner.Hello{Run: "run_2", Token: b.token}))
	require.NoError(t, w.Start(runner.Start{
		Launch: b.shell(fmt.Sprintf(`read -r x; while read -r line; do echo "got $line"; done < %s`, fifo)), Input: []byte("go\n"),
	}))
	in, err := os.OpenFile(fifo, os.O_WRONLY, 0) // once the agent reads it
	require.NoError(t, err)
	defer in.Close()
	say := func(n int) {
		_, err := fmt.Fprintln(in, n)
		require.NoError(t, err)
		w.line(fmt.Sprintf("got %d", n))
	}
	say(0)
	atServe, atAttach := switches(t, serve), switches(t, attach)
	for n := range lines {
		say(n + 1)
	}
	atServe, atAttach = switches(t, serve)-atServe, switches(t, attach)-atAttach
	t.Logf("%d lines: the runner waited %d times, attach %d times", lines, atServe, atAttach)
	require.Less(t, atAttach, lines/2)
	require.Less(t, atServe, 4*lines)
}

// TestLinkWithoutStdoutToPassOn checks that an attach whose stdout cannot be passed on, like every
// attach of an earlier release, copies the messages itself.
func TestLinkWithoutStdoutToPassOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, os.WriteFile(filepath.Join(b.paths.Workspace, "before"), []byte("one\n"), 0o600))
	stdin, toAttach := io.Pipe()
	fromAttach, stdout := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := command.Attach(t.Context(), b.paths.State, "run_1", 0, stdin, stdout)
		_ = stdout.Close()
		ended <- err
	}()
	link, err := runner.Dial(t.Context(), toAttach, fromAttach, runner.Hello{Run: "run_1", Token: b.token, Files: &workspacefile.Position{}}, nil)
	require.NoError(t, err)
	w := &worker{t: t, Link: link}
	require.NoError(t, w.Start(runner.Start{Launch: b.shell(echo), Input: []byte("one\n")}))
	w.line("got one")
	require.NoError(t, w.Flush(1))
	w.until(func(m runner.Message) bool { f, ok := m.(*runner.Flushed); return ok && f.ID == 1 })
	require.NoError(t, w.Detach(t.Context()))
	require.NoError(t, w.Reattach(t.Context(), runner.Hello{Run: "run_1", Token: b.token, From: 1}))
	require.NoError(t, w.Input([]byte("two\n")))
	require.EqualValues(t, 1, w.line("got two").No)
	require.NoError(t, w.Close())
	require.NoError(t, <-ended)
}
