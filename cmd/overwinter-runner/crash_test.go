package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

func TestOpenRunIsEndedAfterRunnerDeath(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", `echo $$ > pid; `+echo, "one\n")
	w.line("got one")
	b.stop(syscall.SIGKILL)
	for w.next() != nil {
	}
	data, err := os.ReadFile(filepath.Join(b.paths.Workspace, "pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return gone(pid) }, deadline, poll, "the agent dies with the runner")

	b.start()
	w = b.attach(runner.Hello{Run: "run_1", From: 0})
	require.Equal(t, runner.Welcome{Version: runner.ProtocolVersion, Delivery: runner.Cut, LastFrame: 0, Steers: true, Seals: true}, w.Welcome())
	w.line("got one")
	require.NoError(t, w.Start(runner.Start{Launch: b.shell(echo), Input: []byte("one\n")}))
	w.delivery(runner.Cut)
	require.False(t, b.ping().Agent, "nothing was delivered again")

	w = b.started("run_2", echo, "two\n")
	w.line("got two")
}

// gone reports whether a process has exited. A zombie that its new parent does not reap counts as
// exited.
func gone(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(data), ") Z ")
}

func TestEndedRunIsKeptAfterRunnerDeath(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", `read -r x; echo bye`, "one\n")
	require.Zero(t, w.exit().Code)
	b.stop(syscall.SIGKILL)
	b.start()
	w = b.attach(runner.Hello{Run: "run_1", From: 1})
	require.Equal(t, runner.Delivered, w.Welcome().Delivery)
	require.False(t, w.Welcome().Open)
	require.Zero(t, w.exit().Code)
}

func TestTornRecordIsTruncated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", echo, "one\n")
	w.line("got one")
	b.stop(syscall.SIGKILL)
	log := filepath.Join(b.paths.State, "runs", "run_1.log")
	f, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.Write([]byte{0, 0, 1, 0, 1, 2, 3})
	require.NoError(t, err)
	require.NoError(t, f.Close())

	b.start()
	w = b.attach(runner.Hello{Run: "run_1"})
	require.Equal(t, runner.Cut, w.Welcome().Delivery)
	require.Zero(t, w.Welcome().LastFrame)
	w.line("got one")
}

func TestCrashIsReportedWithCodeAndStderr(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", `read -r x; echo "out of luck" >&2; exit 42`, "one\n")
	r := w.exit()
	require.Equal(t, runner.ExitReport{Code: 42, Stderr: "out of luck\n"}, r)
	require.Equal(t, runner.Stderr, w.frames[0].Stream)
	require.Equal(t, "out of luck", string(w.frames[0].Data))

	w = b.started("run_2", `read -r x; kill -SEGV $$`, "two\n")
	r = w.exit()
	require.Equal(t, -1, r.Code)
	require.Equal(t, "segmentation fault", r.Signal)
}

func TestAgentIsStartedAgainAfterCrash(t *testing.T) {
	t.Parallel()
	b := setup(t)
	script := `read -r x; echo "got $x"; [ "$x" = crash ] && exit 3; read -r y`
	w := b.started("run_1", script, "crash\n")
	require.Equal(t, 3, w.exit().Code)
	w = b.started("run_2", script, "fine\n")
	w.line("got fine")
	require.EqualValues(t, 0, w.frames[0].No)
}

// asDyingAgent names the environment variable that makes the test binary act as dyingAgent.
const asDyingAgent = "OVERWINTER_TEST_AS_DYING_AGENT"

// dyingAgent answers its first line and is then ended by the kernel for a while, as a killed process
// with much memory is: its first thread exits, and the others when input arrives that they do not
// read, or after 300 ms. A second process only answers.
func dyingAgent() {
	runtime.LockOSThread() // the first thread, since no goroutine has been started
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Fprintln(os.Stdout, "got "+lines.Text())
		if f, err := os.OpenFile("died", os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			continue
		} else if f.Close() != nil {
			break
		}
		go func() {
			_, _ = unix.Poll([]unix.PollFd{{Fd: 0, Events: unix.POLLIN}}, 300)
			os.Exit(1)
		}()
		_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
	}
	os.Exit(0)
}

// TestPromptIsNotWrittenToDyingAgent checks that a prompt waits for the exit of a process that is
// being ended, and is delivered to a new one.
func TestPromptIsNotWrittenToDyingAgent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	self, err := os.Executable()
	require.NoError(t, err)
	script := fmt.Sprintf("echo $$ > pid; %s=1 exec %s", asDyingAgent, self)
	w := b.started("run_1", script, "one\n")
	w.line("got one")
	data, err := os.ReadFile(filepath.Join(b.paths.Workspace, "pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return gone(pid) }, deadline, poll, "its first thread has exited")

	w = b.started("run_2", script, "two\n")
	var first runner.Frame
	w.until(func(m runner.Message) bool {
		f, ok := m.(*runner.Frame)
		if ok {
			first = *f
		}
		return ok
	})
	require.Equal(t, "got two", string(first.Data))
}

func TestUnstartableAgentEndsRunImmediately(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cases := map[string]runner.Launch{
		"no_such_file":    {Argv: []string{"/no/such/agent"}, Dir: b.paths.Workspace},
		"no_such_command": {Argv: []string{"no-such-agent"}, Dir: b.paths.Workspace},
		"no_argv":         {Dir: b.paths.Workspace},
		"no_dir":          {Argv: []string{"/bin/sh"}, Dir: filepath.Join(b.paths.Workspace, "none")},
		"no_program":      {Argv: []string{b.paths.Workspace}, Dir: b.paths.Workspace},
	}
	for name, launch := range cases {
		w := b.attach(runner.Hello{Run: name})
		require.NoError(t, w.Start(runner.Start{Launch: launch, Input: []byte("x\n")}))
		r := w.exit()
		require.Equal(t, 127, r.Code, name)
		require.NotEmpty(t, r.Stderr, name)
	}
	w := b.started("after", echo, "one\n")
	w.line("got one")
}

func TestStderrIsBoundedAndItsEndIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", `read -r x; i=0; while [ $i -lt 60 ]; do head -c 100000 /dev/zero | tr '\0' 'e' | fold -w 999 >&2; echo >&2; i=$((i+1)); done; echo "the end" >&2; exit 1`, "go\n")
	r := w.exit()
	require.LessOrEqual(t, len(r.Stderr), 4<<10)
	require.True(t, strings.HasSuffix(r.Stderr, "the end\n"))
	total := 0
	note := false
	for _, f := range w.frames {
		if f.Stream == runner.Stderr {
			total += len(f.Data)
			note = note || strings.Contains(string(f.Data), "lines of stderr left out")
		}
	}
	require.Less(t, total, 5_000_000)
	require.True(t, note)
}

func TestDetachedChildDoesNotDelayExit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", `read -r x; setsid sh -c 'trap "" TERM HUP; sleep 1000' & echo bye; exit 5`, "go\n")
	w.line("bye")
	require.Equal(t, 5, w.exit().Code)
}

func TestSecondRunnerOfSameDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cmd := b.command(t.Context(), b.paths.Serve())
	cmd.Env = append(cmd.Env, runner.TokenVariable+"="+b.hash)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "another runner")
	require.NotZero(t, b.ping().PID)
}

func TestServeNeedsTokenHash(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cmd := b.command(t.Context(), b.paths.Serve())
	cmd.Env = append(cmd.Env, runner.TokenVariable+"=short")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, runner.ExitUsage, cmd.ProcessState.ExitCode())
	require.Contains(t, string(out), runner.TokenVariable)
}

func TestCommandsReportMissingRunner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.stop(syscall.SIGTERM)
	_, _, code := b.run(b.paths.Ping(runner.PingRequest{Token: b.token}))
	require.Equal(t, runner.ExitNoRunner, code)
}
