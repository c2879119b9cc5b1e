package process

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

func TestLinesAndExit(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := h.shell(`echo out; while read -r line; do echo "got $line"; done; echo last >&2; printf tail; exit 3`)
	require.True(t, s.Running)
	h.line("out")
	require.Empty(t, h.do(order{Write: []byte("one\n")}).Err)
	h.line("got one")
	require.Empty(t, h.do(order{Stop: waitLimit}).Err, "the end of stdin is enough")
	report := h.exit()
	require.Equal(t, runner.ExitReport{Code: 3, Stderr: "last\n", Stopped: runner.StoppedSeal}, report)
	h.line("last")
	h.line("tail")
	for _, f := range h.frames {
		require.Equal(t, f.Data == "tail", f.Truncated, "only a last line without its end is: %+v", f)
	}
	ended := h.do(order{Write: []byte("two\n")})
	require.Equal(t, ErrEnded.Error(), ended.Err)
	require.False(t, ended.Running)
	require.True(t, ended.Ended)
	require.Equal(t, ErrEnded.Error(), h.do(order{Interrupt: &runner.Interrupt{Stdin: []byte("x\n"), Grace: time.Hour}}).Err)
}

// alive reports whether a process has not exited.
func alive(t *testing.T, pid string) bool {
	t.Helper()
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return false
	}
	require.NoError(t, err)
	rest := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
	return !strings.HasPrefix(rest, " Z") && !strings.HasPrefix(rest, " X")
}

func TestEveryDescendantIsDeadAtExitFrame(t *testing.T) {
	t.Parallel()
	const detach = `setsid sh -c 'trap "" TERM HUP; echo $$ > detached.new; mv detached.new detached; exec sleep 1000' > /dev/null 2>&1 < /dev/null &
		while ! [ -e detached ]; do :; done; `
	t.Run("of an agent that ends by itself", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.shell(detach + `exit 0`)
		require.Equal(t, runner.ExitReport{}, h.exit())
		require.False(t, alive(t, h.text("detached")))
	})
	t.Run("of one that is killed", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.shell(detach + `echo ready; read -r forever`)
		h.line("ready")
		require.True(t, alive(t, h.text("detached")))
		require.False(t, h.do(order{Kill: true}).Running)
		require.Equal(t, runner.ExitReport{Code: -1, Signal: "killed", Interrupted: true, Stopped: runner.StoppedInterrupt}, h.exit())
		require.False(t, alive(t, h.text("detached")))
	})
}

func TestStopEscalates(t *testing.T) {
	t.Parallel()
	t.Run("to SIGTERM", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.shell(`trap 'echo term; exit 7' TERM; echo ready; while :; do sleep 0.01; done`)
		h.line("ready")
		h.do(order{Stop: 3 * time.Second}) // the trap may take another three seconds
		h.line("term")
		report := h.exit()
		require.Equal(t, 7, report.Code)
		require.Equal(t, runner.StoppedSeal, report.Stopped)
	})
	t.Run("to SIGKILL", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.shell(`trap '' TERM; echo ready; while :; do sleep 0.01; done`)
		h.line("ready")
		h.do(order{Stop: 20 * time.Millisecond})
		require.Equal(t, runner.ExitReport{Code: -1, Signal: "killed", Stopped: runner.StoppedSeal}, h.exit())
	})
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	const deaf = `trap '' INT; echo ready; while :; do sleep 0.01; done`
	t.Run("by signal", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.shell(`trap 'echo heard; exit 0' INT; echo ready; while :; do sleep 0.01; done`)
		h.line("ready")
		require.Empty(t, h.do(order{Interrupt: &runner.Interrupt{Signal: "INT", Grace: time.Hour}}).Err)
		h.line("heard")
		report := h.exit()
		require.Zero(t, report.Code, "the kill was called off")
		require.False(t, report.Interrupted)
	})
	t.Run("by stdin", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.shell(`read -r line; echo "got $line"`)
		require.Empty(t, h.do(order{Interrupt: &runner.Interrupt{Stdin: []byte("stop\n"), Signal: "KILL", Grace: time.Hour}}).Err)
		h.line("got stop")
		require.Equal(t, runner.ExitReport{}, h.exit(), "the signal is for agents without such an input")
	})
	t.Run("that is ignored", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.shell(deaf)
		h.line("ready")
		require.Empty(t, h.do(order{Interrupt: &runner.Interrupt{Signal: "SIGINT", Grace: time.Millisecond}}).Err)
		require.Equal(t, runner.ExitReport{Code: -1, Signal: "killed", Interrupted: true, Stopped: runner.StoppedInterrupt}, h.exit())
	})
	t.Run("without grace", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.shell(deaf)
		h.line("ready")
		require.False(t, h.do(order{Interrupt: &runner.Interrupt{}}).Running)
		require.True(t, h.exit().Interrupted)
	})
	t.Run("with an unknown signal", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.shell(deaf)
		h.line("ready")
		s := h.do(order{Interrupt: &runner.Interrupt{Signal: "NONE", Grace: time.Millisecond}})
		require.Equal(t, `no signal has that name: "NONE"`, s.Err)
		require.True(t, s.Running)
	})
	t.Run("of one that does not read", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.shell(deaf)
		h.line("ready")
		h.do(order{Fill: true, Write: make([]byte, 1<<20)})
		require.Empty(t, h.do(order{Interrupt: &runner.Interrupt{Stdin: []byte("stop\n"), Grace: time.Millisecond}}).Err, "the kill ends the turn")
		require.True(t, h.exit().Interrupted)
	})
}

func TestInterruptDoesNotProlongGrace(t *testing.T) {
	t.Parallel()
	a := &Agent{child: &child{done: make(chan struct{})}, writes: make(chan stdinWrite, stdinQueue)}
	i := runner.Interrupt{Stdin: []byte("stop\n"), Grace: time.Hour}
	require.NoError(t, a.Interrupt(i))
	first := a.pending
	require.NotNil(t, first)
	require.NoError(t, a.Interrupt(i))
	require.Same(t, first, a.pending)
	a.CallOff()
	require.Nil(t, a.pending)
	require.False(t, first.Stop(), "it was stopped")
	a.CallOff()
	require.Len(t, a.writes, 2)
}

func TestUnreadingAgentIsStuck(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.shell(`echo ready; exec sleep 1000`)
	h.line("ready")
	s := h.do(order{Fill: true, Write: make([]byte, 1<<20)}) // more than fits into a pipe
	require.Equal(t, ErrStuck.Error(), s.Err)
	require.GreaterOrEqual(t, s.Count, stdinQueue)
	require.LessOrEqual(t, s.Count, stdinQueue+1, "one is being written")
}

// TestEndedAgentIsNotRunning checks an agent whose exit signal has not been handled yet. If such an
// agent counted as running, a prompt would be written to it.
func TestEndedAgentIsNotRunning(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.shell(`echo ready; exec sleep 1000`)
	h.line("ready")
	s := h.do(order{EndUnseen: true})
	require.Empty(t, s.Err)
	require.False(t, s.Running)
	require.Equal(t, "killed", h.exit().Signal)
}

// TestPipeHeldOpen checks that the exit frame does not wait for a program that holds the
// agent's stdout open without being a descendant of it.
func TestPipeHeldOpen(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := h.shell(`echo ready; read -r line; exit 5`)
	h.line("ready")
	held, err := os.OpenFile(filepath.Join("/proc", strconv.Itoa(s.PID), "fd/1"), os.O_WRONLY, 0)
	require.NoError(t, err)
	defer held.Close()
	require.Empty(t, h.do(order{Write: []byte("end\n")}).Err)
	require.Equal(t, 5, h.exit().Code)
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	h := newHost(t, "LANG=xx", "PATH=/usr/bin:/bin", "SECRET_OF_THE_RUNNER=1", runner.TokenVariable+"=hash")
	s := h.do(order{Start: &runner.Start{
		Launch: runner.Launch{
			Argv: []string{"env"}, Dir: h.dir,
			Env: map[string]string{"A": "launch", "B": "launch", "TERM": "vt100", runner.TokenVariable: "x"},
		},
		Secrets: map[string]string{"B": "secret"},
	}})
	require.Empty(t, s.Err)
	require.Zero(t, h.exit().Code)
	var got []string
	for _, f := range h.frames {
		if f.Frame == runner.Stdout && !strings.HasPrefix(f.Data, "PWD=") {
			got = append(got, f.Data)
		}
	}
	require.ElementsMatch(t, []string{"A=launch", "B=secret", "HOME=" + h.dir, "LANG=xx", "PATH=/usr/bin:/bin", "TERM=vt100"}, got)
}

func TestStartErrors(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	start := func(dir string, argv ...string) string {
		return h.do(order{Start: &runner.Start{Launch: runner.Launch{Argv: argv, Dir: dir}}}).Err
	}
	plain := filepath.Join(h.dir, "plain")
	require.NoError(t, os.WriteFile(plain, []byte("not a program"), 0o600))
	require.Equal(t, "launch names no program", start(h.dir))
	require.Equal(t, "no-such-program: command not found", start(h.dir, "no-such-program"))
	require.Contains(t, start(h.dir, plain), "permission denied")
	require.Contains(t, start(filepath.Join(h.dir, "none"), "sh"), "working directory: ")
	require.Contains(t, start(plain, "sh"), "is not a directory")
	require.JSONEq(t, `{"code": 127, "signal": "", "stderr": "why", "interrupted": false}`, string(FailedStart(errors.New("why"))))
	h.shell(`exit 0`)
	require.Zero(t, h.exit().Code, "a start that failed leaves nothing")
}

func TestLookPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"a/tool": 0o600, "b/tool": 0o700, "c/tool/x": 0o700} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, mode))
	}
	got, err := lookPath("tool", dir, []string{"HOME=/", "PATH=c:a:" + filepath.Join(dir, "none") + ":b"})
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "b/tool"), got, "neither a directory nor a file that cannot be executed; relative to the agent's directory")
	got, err = lookPath("./tool", dir, nil)
	require.NoError(t, err)
	require.Equal(t, "./tool", got)
}

func TestLaunchKey(t *testing.T) {
	t.Parallel()
	start := func(change func(*runner.Start)) string {
		s := &runner.Start{
			Launch:  runner.Launch{Argv: []string{"agent"}, Dir: "/workspace", Env: map[string]string{"A": "1", "B": "2"}},
			Secrets: map[string]string{"KEY": "hunter2"},
		}
		change(s)
		return LaunchKey(s)
	}
	same := start(func(*runner.Start) {})
	require.Equal(t, same, start(func(s *runner.Start) { s.Input, s.Launch.Transcripts = []byte("prompt"), []string{"/x"} }))
	require.NotContains(t, same, "hunter2")
	for name, change := range map[string]func(*runner.Start){
		"argv":    func(s *runner.Start) { s.Launch.Argv = append(s.Launch.Argv, "-x") },
		"env":     func(s *runner.Start) { s.Launch.Env["A"] = "2" },
		"dir":     func(s *runner.Start) { s.Launch.Dir = "/" },
		"secrets": func(s *runner.Start) { s.Secrets["KEY"] = "hunter3" },
	} {
		require.NotEqual(t, same, start(change), name)
		require.Equal(t, "k", start(func(s *runner.Start) { change(s); s.Launch.Key = "k" }), name)
	}
}
