package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

func TestFullDiskEndsAgentAndLink(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 || exec.Command("unshare", "-m", "true").Run() != nil {
		t.Skip("a small file system needs root and mount namespaces")
	}
	b := setup(t)
	b.stop(syscall.SIGTERM)
	// The mount is only visible to the runner and is removed with it.
	mount := []string{"unshare", "-m", "sh", "-c", `mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"`, b.paths.State}
	cmd := b.command(t.Context(), append(mount, b.paths.Serve()...))
	cmd.Env = append(cmd.Env, runner.TokenVariable+"="+b.hash)
	cmd.Stderr = b.log
	require.NoError(t, cmd.Start())
	b.serve = cmd
	b.wrap = []string{"nsenter", "-m", "-t", strconv.Itoa(cmd.Process.Pid)}
	require.Eventually(t, func() bool { // until then the new namespace is not in place
		out, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "comm"))
		return err == nil && string(out) != "unshare\n" && string(out) != "sh\n"
	}, deadline, poll)
	require.Equal(t, cmd.Process.Pid, b.ping().PID)

	w := b.started("run_1", `read -r x; while :; do head -c 10000 /dev/zero | tr '\0' 'x'; echo; done`, "go\n")
	for w.next() != nil {
	}
	refusal, ok := errors.AsType[*runner.Error](w.end)
	require.True(t, ok, "%v", w.end)
	require.Equal(t, runner.CodeJournal, refusal.Code)
	for i, f := range w.frames {
		require.EqualValues(t, i, f.No)
	}
	require.Eventually(t, func() bool { return !b.ping().Agent }, deadline, poll)
	again := b.attach(runner.Hello{Run: "run_1", From: int64(len(w.frames))})
	require.GreaterOrEqual(t, again.Welcome().LastFrame, int64(len(w.frames))-1, "the written frames can be read")
}
