package child_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/devstack/child"
)

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

type bundle struct {
	*child.Supervisor
	dir  string // run and log directory, and files of children
	echo *buffer
}

func setup(t *testing.T) bundle {
	t.Helper()
	b := bundle{dir: t.TempDir(), echo: &buffer{}}
	b.Supervisor = child.NewSupervisor(child.Options{RunDir: b.dir, LogDir: b.dir, Echo: b.echo})
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func (b bundle) file(name string) string { return filepath.Join(b.dir, name) }

func TestStartsUntilReadyAndStops(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.file("ready")
	require.NoError(t, b.Start(t.Context(), child.Spec{
		Name: "one", Command: command(t, "answer", ready), Ready: exists(ready), StopTimeout: waitLimit,
	}))
	pid := b.PID("one")
	require.True(t, alive(pid))
	require.FileExists(t, b.file("one.json"))

	b.Stop("one")
	require.False(t, alive(pid))
	require.NoFileExists(t, b.file("one.json"))
	log, err := os.ReadFile(b.LogPath("one"))
	require.NoError(t, err)
	require.Contains(t, string(log), "bye", "it was killed instead of asked")
	b.Stop("one") // again
	b.Stop("unknown")
}

func TestStartsAgainAfterKill(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.Start(t.Context(), child.Spec{Name: "one", Command: command(t, "hang")}))
	for range 2 {
		pid := b.PID("one")
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		eventually(t, func() bool { now := b.PID("one"); return now != 0 && now != pid }, "it did not come back")
		require.False(t, alive(pid))
	}
}

func TestStopsWhileItWaitsToStartAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.Start(t.Context(), child.Spec{Name: "one", Command: command(t, "hang")}))
	eventually(t, func() bool {
		pid := b.PID("one") // it may have been restarted already
		if pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return pid == 0
	}, "it is still there")
	b.Stop("one")
	require.Zero(t, b.PID("one"))
}

func TestFailedFirstStartReturnsOutput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	err := b.Start(t.Context(), child.Spec{
		Name: "one", Command: command(t, "fail"), Ready: exists(b.file("never")),
	})
	require.EqualError(t, err, "start one: it ended with exit status 7: cannot find my shoes (log: "+b.LogPath("one")+")")
	b.Stop("one") // does not wait for a missing child
}

func TestMissingProgramIsError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	err := b.Start(t.Context(), child.Spec{Name: "one", Command: child.Command{Path: b.file("nothing")}})
	require.ErrorContains(t, err, "no such file or directory")
}

func TestKilledFirstStartIsRepeated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mark := b.file("mark")
	require.NoError(t, b.Start(t.Context(), child.Spec{
		Name: "one", Command: command(t, "weak", mark), Ready: exists(mark + ".twice"),
	}))
	require.True(t, alive(b.PID("one")))
}

func TestUnreadyFirstStartIsError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	err := b.Start(t.Context(), child.Spec{
		Name: "one", Command: command(t, "hang"), Ready: exists(b.file("never")), ReadyTimeout: 100 * time.Millisecond,
	})
	require.ErrorContains(t, err, "start one: not ready after 100ms")
	require.Zero(t, b.PID("one"))
}

func TestEndOfContextLeavesChildToStop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := b.Start(ctx, child.Spec{
		Name: "one", Command: command(t, "hang"),
		Ready: func(context.Context) error { cancel(); return context.Canceled },
	})
	require.ErrorIs(t, err, context.Canceled)
	pid := b.PID("one")
	require.True(t, alive(pid))
	b.Stop("one")
	require.False(t, alive(pid))
}

func TestKillsProcessGroupOfStubbornChild(t *testing.T) {
	t.Parallel()
	b := setup(t)
	file := b.file("grandchild")
	require.NoError(t, b.Start(t.Context(), child.Spec{
		Name: "one", Command: command(t, "stubborn", file), Ready: exists(file), StopTimeout: 100 * time.Millisecond,
	}))
	pid, grandchild := b.PID("one"), readPID(t, file)
	require.True(t, alive(grandchild))
	b.Stop("one")
	require.False(t, alive(pid))
	eventually(t, func() bool { return !alive(grandchild) }, "the rest of the group is still there")
}

func TestKillsProcessGroupOfKilledChild(t *testing.T) {
	t.Parallel()
	b := setup(t)
	file := b.file("grandchild")
	require.NoError(t, b.Start(t.Context(), child.Spec{
		Name: "one", Command: command(t, "stubborn", file), Ready: exists(file), StopTimeout: time.Millisecond,
	}))
	grandchild := readPID(t, file)
	require.NoError(t, syscall.Kill(b.PID("one"), syscall.SIGKILL))
	eventually(t, func() bool { return !alive(grandchild) }, "the rest of the group is still there")
}

func TestKillEndsPendingStop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	file := b.file("grandchild")
	require.NoError(t, b.Start(t.Context(), child.Spec{
		Name: "one", Command: command(t, "stubborn", file), Ready: exists(file), StopTimeout: time.Hour,
	}))
	stopped := make(chan struct{})
	go func() { defer close(stopped); b.Stop("one") }()
	b.Kill()
	select {
	case <-stopped:
	case <-time.After(waitLimit):
		require.Fail(t, "Stop still waits")
	}
	require.Error(t, b.Start(t.Context(), child.Spec{Name: "two", Command: command(t, "hang")}), "nothing starts after Kill")
}

func TestHeldStdinEndsWithSupervisor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held := command(t, "stdin")
	held.HoldStdin = true
	require.NoError(t, b.Start(t.Context(), child.Spec{Name: "held", Command: held}))
	err := b.Start(t.Context(), child.Spec{Name: "empty", Command: command(t, "stdin"), Ready: exists(b.file("never"))})
	require.ErrorContains(t, err, "exit status 0", "a stdin that is not held is empty")
	require.True(t, alive(b.PID("held")))
}

func TestShowsWarningsOfReadyChildrenAndKeepsAllInLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	file := b.file("ready")
	spec := child.Spec{
		Name: "one", Command: child.Command{Path: "/bin/sh", Args: []string{"-c", `
			echo '{"level":"warn","msg":"too early"}'
			echo '{"level":"info","msg":"that was all"}'
			while [ ! -e "$0" ]; do sleep 0.01; done
			echo '{"level":"info","msg":"all is well"}'
			echo '{"level":"error","msg":"alas","why":"rain"}'
			sleep 1000`, file}, Env: os.Environ()},
	}
	spec.Ready = func(context.Context) error {
		// Lines are processed in order, so the first one has been.
		if log, err := os.ReadFile(b.LogPath("one")); err != nil || !bytes.Contains(log, []byte("that was all")) {
			return errors.New("it has not spoken yet")
		}
		return nil
	}
	require.NoError(t, b.Start(t.Context(), spec))
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	eventually(t, func() bool { return b.echo.String() != "" }, "nothing was shown")
	require.Contains(t, b.echo.String(), "one         │ ERROR alas why=rain\n")
	require.NotContains(t, b.echo.String(), "all is well")
	require.NotContains(t, b.echo.String(), "too early")
	log, err := os.ReadFile(b.LogPath("one"))
	require.NoError(t, err)
	require.Contains(t, string(log), "all is well")
}

func TestLogsOfEarlierRunsAreKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, word := range []string{"first", "second", "third", "fourth", "fifth"} {
		s := child.NewSupervisor(child.Options{RunDir: dir, LogDir: dir})
		err := s.Start(t.Context(), child.Spec{
			Name:    "one",
			Command: child.Command{Path: "/bin/echo", Args: []string{word}},
			Ready:   exists("/nonexistent"),
		})
		require.Error(t, err)
		require.NoError(t, s.Close())
	}
	for name, word := range map[string]string{"one.log": "fifth", "one.log.1": "fourth", "one.log.2": "third", "one.log.3": "second"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, word+"\n", string(content))
	}
	require.NoFileExists(t, filepath.Join(dir, "one.log.4"))
}

func TestChildrenDieWithKilledSupervisor(t *testing.T) {
	t.Parallel()
	dir, self := t.TempDir(), command(t, "supervisor").Path
	file := filepath.Join(dir, "pid")
	supervisor := exec.CommandContext(t.Context(), self, "supervisor", dir, file)
	require.NoError(t, supervisor.Start())
	pid := readPID(t, file)
	require.True(t, alive(pid))
	require.NoError(t, supervisor.Process.Kill())
	require.Error(t, supervisor.Wait())
	eventually(t, func() bool { return !alive(pid) }, "the child outlived its supervisor")
}
