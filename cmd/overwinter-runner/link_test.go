package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

func TestPromptIsDeliveredAndFramesAreNumbered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.attach(runner.Hello{Run: "run_1"})
	require.Equal(t, runner.Welcome{Version: runner.ProtocolVersion, Delivery: runner.NotStarted, LastFrame: -1, Steers: true, Seals: true}, w.Welcome())

	require.NoError(t, w.Start(runner.Start{Launch: b.shell(echo), Input: []byte("one\ntwo\n")}))
	w.line("got two")
	w.delivery(runner.Delivered)
	require.NoError(t, w.Input([]byte("three\n")))
	w.line("got three")
	for i, f := range w.frames {
		require.EqualValues(t, i, f.No)
		require.Equal(t, runner.Stdout, f.Stream)
		require.False(t, f.At.IsZero())
	}
	require.Equal(t, []string{"got one", "got two", "got three"}, texts(w.frames))
	p := b.ping()
	require.True(t, p.Agent)
	require.Equal(t, "run_1", p.Run)
}

func TestOneProcessServesManyRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	script := `n=0; while read -r line; do n=$((n+1)); echo "$n $line"; done`
	for i := range 3 {
		w := b.started(fmt.Sprintf("run_%d", i), script, "hello\n")
		f := w.line(fmt.Sprintf("%d hello", i+1))
		require.Zero(t, f.No)
		require.NoError(t, w.Close())
	}
}

func TestNewWorkerContinuesAfterLastFrame(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const total = 400
	// The agent waits for input in the middle, so that the test can act there.
	script := fmt.Sprintf(`read -r go
i=0; while [ $i -lt %d ]; do echo "line $i"; i=$((i+1)); [ $i = 200 ] && read -r go; done; read -r go`, total)
	w := b.started("run_1", script, "go\n")
	w.line("line 99")
	seen := texts(w.frames)
	require.NoError(t, w.cmd.Process.Kill())
	for w.next() != nil { // messages received before it died are lost with it
	}

	w = b.attach(runner.Hello{Run: "run_1", From: int64(len(seen)), Attempt: 2})
	require.Equal(t, runner.Delivered, w.Welcome().Delivery)
	require.True(t, w.Welcome().Open)
	require.True(t, w.Welcome().Agent)
	require.NoError(t, w.Input([]byte("go\n")))
	w.line(fmt.Sprintf("line %d", total-1))
	require.EqualValues(t, len(seen), w.frames[0].No)
	seen = append(seen, texts(w.frames)...)
	require.Len(t, seen, total)
	for i, line := range seen {
		require.Equal(t, fmt.Sprintf("line %d", i), line)
	}
}

func TestNewLinkDisplacesOldLink(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := b.started("run_1", echo, "one\n")
	old.line("got one")

	w := b.attach(runner.Hello{Run: "run_1", From: 1})
	old.displaced()
	require.Contains(t, old.stderr.String(), "newer link")

	require.NoError(t, w.Input([]byte("two\n")))
	w.line("got two")
	require.Equal(t, []string{"got two"}, texts(w.frames))
}

// deaf starts an attach that starts a flood and never reads it. When deaf returns, every pipe
// between the runner and the test is full.
func (b *sandbox) deaf(run string) (cmd *exec.Cmd, stdin io.Closer) {
	b.t.Helper()
	h := runner.Hello{Version: runner.ProtocolVersion, Run: run, Token: b.token}
	cmd = b.command(b.t.Context(), b.paths.Attach(h))
	in, err := cmd.StdinPipe()
	require.NoError(b.t, err)
	_, err = cmd.StdoutPipe()
	require.NoError(b.t, err)
	require.NoError(b.t, cmd.Start())
	require.NoError(b.t, runner.WriteMessage(in, &h))
	require.NoError(b.t, runner.WriteMessage(in, &runner.Start{
		Launch: b.shell(`read -r x; i=0; while [ $i -lt 30000 ]; do echo "line $i of a flood that fills every pipe on its way"; i=$((i+1)); done; : > done; read -r x`),
		Input:  []byte("go\n"),
	}))
	b.file("done")
	return cmd, in
}

// ends waits for an attach to exit by itself, with an error.
func (b *sandbox) ends(cmd *exec.Cmd) {
	b.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		require.Error(b.t, err)
	case <-time.After(deadline):
		require.NoError(b.t, cmd.Process.Kill())
		b.t.Fatal("attach hangs")
	}
}

func TestDisplacedAttachEndsWithoutReader(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cmd, _ := b.deaf("run_1")
	require.NoError(t, b.attach(runner.Hello{Run: "run_2"}).Close())
	b.ends(cmd)
}

func TestLinkEndsAfterHangup(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cmd, stdin := b.deaf("run_1")
	require.NoError(t, stdin.Close())
	b.ends(cmd)
}

func TestSlowWorkerDoesNotBlockAgent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", `head -c 20000000 /dev/zero | tr '\0' 'x' | fold -w 1000; echo; : > done; read -r x; read -r x`, "go\n")
	b.file("done") // Next was not called
	w.until(func(m runner.Message) bool { f, ok := m.(*runner.Frame); return ok && f.No == 19_999 })
}

func TestStartingTwiceDeliversOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", echo, "one\n")
	w.line("got one")
	again := runner.Start{Launch: b.shell(echo), Input: []byte("one\n")}
	require.NoError(t, w.Start(again))
	w.delivery(runner.Delivered)

	w = b.attach(runner.Hello{Run: "run_1", From: 0})
	require.NoError(t, w.Start(again))
	require.NoError(t, w.Input([]byte("mark\n")))
	w.line("got mark")
	require.Equal(t, []string{"got one", "got mark"}, texts(w.frames))
}

func TestWrongTokenIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other, _ := runner.NewToken()
	w, err := b.tryAttach(runner.Hello{Run: "run_1", Token: other})
	refusal, ok := errors.AsType[*runner.Error](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, runner.CodeToken, refusal.Code)
	require.Equal(t, runner.ExitRefused, w.exitCode())

	for _, e := range []runner.Exec{
		b.paths.Ping(runner.PingRequest{Token: other}),
		b.paths.Abort(runner.AbortRequest{Token: other, Run: "run_1"}),
		b.paths.Seal(runner.SealRequest{Token: other}),
	} {
		out, stderr, code := b.run(e)
		require.Equal(t, runner.ExitRefused, code, stderr)
		require.Empty(t, out)
	}
	require.False(t, b.ping().Sealed)
}

func TestOlderAttemptDoesNotDisplaceNewerOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.attach(runner.Hello{Run: "run_1", Attempt: 2})
	_, err := b.tryAttach(runner.Hello{Run: "run_1", Attempt: 1})
	refusal, ok := errors.AsType[*runner.Error](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, runner.CodeStale, refusal.Code)
	require.NoError(t, w.Flush(1))
	require.Equal(t, &runner.Flushed{ID: 1}, w.next())
}

func TestAgentProcessHasNoRunnerSecrets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.attach(runner.Hello{Run: "run_1"})
	require.NoError(t, w.Start(runner.Start{
		Launch:  runner.Launch{Argv: []string{"env"}, Dir: b.paths.Workspace, Env: map[string]string{"PLAIN": "1", runner.TokenVariable: "x"}},
		Secrets: map[string]string{"API_KEY": "secret"},
	}))
	require.Zero(t, w.exit().Code)
	names := map[string]string{}
	for _, f := range w.frames {
		if k, v, ok := strings.Cut(string(f.Data), "="); ok && f.Stream == runner.Stdout {
			names[k] = v
		}
	}
	require.Equal(t, "secret", names["API_KEY"])
	require.Equal(t, "1", names["PLAIN"])
	require.Equal(t, b.paths.Home, names["HOME"])
	require.NotContains(t, names, runner.TokenVariable)
	for k := range names {
		require.Contains(t, []string{"PATH", "HOME", "LANG", "TERM", "PLAIN", "API_KEY", "PWD", "SHLVL", "_"}, k)
	}
	argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", w.cmd.Process.Pid))
	require.NoError(t, err)
	require.NotContains(t, string(argv), b.token)
}

func TestSocketIsPrivateToUser(t *testing.T) {
	t.Parallel()
	b := setup(t)
	info, err := os.Stat(filepath.Join(b.paths.State, "runner.sock"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestFloodOfFramesIsDelivered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const total = 100_000
	w := b.started("run_1", fmt.Sprintf(`read -r go; seq 1 %d; read -r go`, total), "go\n")
	for i := range total {
		f := w.until(func(m runner.Message) bool { _, ok := m.(*runner.Frame); return ok }).(*runner.Frame)
		if f.No != int64(i) || string(f.Data) != strconv.Itoa(i+1) {
			t.Fatalf("frame %d: got %d %q", i, f.No, f.Data)
		}
	}
}

func TestLongLineIsTruncated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", fmt.Sprintf(`read -r go; head -c %d /dev/zero | tr '\0' 'x'; echo; echo after; printf torn`, runner.MaxLine+5000), "go\n")
	w.line("after")
	require.Len(t, w.frames, 2)
	require.Len(t, w.frames[0].Data, runner.MaxLine)
	require.True(t, w.frames[0].Truncated)
	require.False(t, w.frames[1].Truncated)
	require.True(t, w.line("torn").Truncated)
}

func TestSecondLaunchReplacesProcess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", echo, "one\n")
	w.line("got one")
	pid := b.ping().AgentPID

	w = b.started("run_2", `while read -r line; do echo "new $line"; done`, "two\n")
	w.line("new two")
	require.NotEqual(t, pid, b.ping().AgentPID)
	require.Equal(t, []string{"new two"}, texts(w.frames), "the end of the old process belongs to the run before")

	w = b.attach(runner.Hello{Run: "run_1", From: 1})
	require.Equal(t, runner.StoppedLaunch, w.exit().Stopped)
	require.False(t, b.attach(runner.Hello{Run: "run_1"}).Welcome().Open)
}

func TestSameKeyKeepsProcess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.shell(echo), b.shell(echo+" # --resume")
	first.Key, second.Key = "model-a", "model-a"
	w := b.attach(runner.Hello{Run: "run_1"})
	require.NoError(t, w.Start(runner.Start{Launch: first, Input: []byte("one\n")}))
	w.line("got one")
	pid := b.ping().AgentPID
	w = b.attach(runner.Hello{Run: "run_2"})
	require.NoError(t, w.Start(runner.Start{Launch: second, Input: []byte("two\n")}))
	w.line("got two")
	require.Equal(t, pid, b.ping().AgentPID)
}

func TestCommandLineMustNameRunOfHello(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cmd := b.command(t.Context(), b.paths.Attach(runner.Hello{Run: "run_2"}))
	var hello bytes.Buffer
	require.NoError(t, runner.WriteMessage(&hello, &runner.Hello{Version: runner.ProtocolVersion, Token: b.token, Run: "run_1"}))
	cmd.Stdin = &hello
	require.Error(t, cmd.Run())
	require.Equal(t, runner.ExitRefused, cmd.ProcessState.ExitCode())
}

func TestEndedRunsReleaseFilesAndFrames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	files := func() int {
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.serve.Process.Pid))
		require.NoError(t, err)
		return len(fds)
	}
	launch := b.shell(`while read -r line; do seq 1 20; echo "got $line"; done`)
	var first int
	const total = 24
	for i := range total {
		w := b.attach(runner.Hello{Run: fmt.Sprint("run_", i)})
		require.NoError(t, w.Start(runner.Start{Launch: launch, Input: fmt.Appendf(nil, "%d\n", i)}))
		w.line(fmt.Sprint("got ", i))
		w.delivery(runner.Delivered)
		require.NoError(t, w.Close())
		if i == 2 {
			first = files()
		}
	}
	require.Eventually(t, func() bool { return files() <= first+2 }, deadline, poll, "the runner learns of a link's end later")
	w := b.attach(runner.Hello{Run: "run_0"})
	require.Equal(t, runner.Welcome{Version: runner.ProtocolVersion, Delivery: runner.Delivered, LastFrame: -1, Agent: true, Steers: true, Seals: true}, w.Welcome())
	require.NoError(t, w.Start(runner.Start{Launch: launch, Input: []byte("again\n")}))
	w.delivery(runner.Delivered)
	require.EqualValues(t, 20, b.attach(runner.Hello{Run: "run_10"}).Welcome().LastFrame)
}

func TestDetachedLinkServesNextRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	script := `n=0; while read -r line; do n=$((n+1)); echo "$n $line"; done`
	w := b.started("run_1", script, "hello\n")
	w.line("1 hello")
	require.NoError(t, w.Settle())
	require.NoError(t, w.Detach(t.Context()))
	require.Equal(t, runner.Watch(""), b.ping().Watch, "the workspace is not watched")
	require.False(t, w.Ended())

	// Another worker is not affected.
	other := b.started("run_2", script, "from another\n")
	other.line("2 from another")

	require.NoError(t, w.Reattach(t.Context(), runner.Hello{Run: "run_3", Token: b.token}))
	require.Equal(t, runner.Welcome{Version: runner.ProtocolVersion, Delivery: runner.NotStarted, LastFrame: -1, Agent: true, Steers: true, Seals: true}, w.Welcome())
	other.displaced()
	require.NoError(t, w.Start(runner.Start{Launch: b.shell(script), Input: []byte("again\n")}))
	require.Zero(t, w.line("3 again").No)

	require.NoError(t, w.Detach(t.Context()))
	err := w.Reattach(t.Context(), runner.Hello{Run: "run_3", Token: "another"})
	refusal, ok := errors.AsType[*runner.Error](err)
	require.True(t, ok, "error: %v", err)
	require.Equal(t, runner.CodeToken, refusal.Code)
	require.Equal(t, runner.ExitRefused, w.exitCode())
}

// TestDetachedLinkSeals checks that a seal over a detached link has the result of the command, and
// that the link serves the next run afterwards.
func TestDetachedLinkSeals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := newShelf()
	w := b.watching("run_1", s)
	b.work("a", "1")
	w.shelve(s, 1)
	s.take()
	require.NoError(t, w.Settle())
	require.NoError(t, w.Detach(t.Context()))
	b.work("late", "2")

	require.True(t, w.Welcome().Seals)
	position := s.position
	request := runner.SealRequest{Token: b.token, FilesFrom: &position, Workspace: b.paths.Workspace}
	store := func(m runner.Message) error { s.add(t, m); return nil }
	sealed, err := w.Seal(t.Context(), request, store)
	require.NoError(t, err)
	require.True(t, sealed.Files)
	require.Equal(t, "run_1", sealed.Run)
	require.NotNil(t, sealed.Manifest.Tree)
	require.Equal(t, []string{"created late"}, s.take())
	require.True(t, b.ping().Sealed)
	position = s.position
	again, err := runner.ReadSeal(bytes.NewReader(b.ok(b.paths.Seal(request))), store)
	require.NoError(t, err)
	require.Equal(t, again, sealed)
	require.Empty(t, s.take())

	require.NoError(t, w.Reattach(t.Context(), runner.Hello{Run: "run_2", Token: b.token}))
	require.NoError(t, w.Start(runner.Start{Launch: b.shell("read -r line; echo again"), Input: []byte("x\n")}))
	w.line("again")
	require.NoError(t, w.Settle())
	require.NoError(t, w.Detach(t.Context()))
	request.Token = "another"
	_, err = w.Seal(t.Context(), request, store)
	refusal, ok := errors.AsType[*runner.Error](err)
	require.True(t, ok, "error: %v", err)
	require.Equal(t, runner.CodeToken, refusal.Code)
	require.Equal(t, runner.ExitRefused, w.exitCode())
}

func TestFloodedDetachedLinkIsComplete(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const flood = `while read -r x; do i=0; while [ $i -lt 3000 ]; do echo "line $i of a flood"; i=$((i+1)); done; echo over; done`
	w := b.started("run_0", flood, "go\n")
	for i := range 20 {
		w.line(fmt.Sprintf("line %d of a flood", 100*i)) // in the middle of the flood
		require.NoError(t, w.Detach(t.Context()))
		require.NoError(t, w.Reattach(t.Context(), runner.Hello{Run: "run_0", Token: b.token, From: int64(100 * i)}))
		require.EqualValues(t, 100*i, w.line(fmt.Sprintf("line %d of a flood", 100*i)).No)
	}
	w.line("over")
}

func TestDetachedAttachEndsWithItsWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", echo, "one\n")
	w.line("got one")
	require.NoError(t, w.Detach(t.Context()))
	require.NoError(t, w.Close())
	require.Equal(t, runner.ExitOK, w.exitCode())
}

// TestLinkDoesNotEndStartingRun checks a worker that disconnects right after starting a
// run, and another that attaches while the run's journal is being created.
func TestLinkDoesNotEndStartingRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	next := b.started("run_0", echo, "zero\n")
	next.line("got zero")
	for i := range 40 {
		run := fmt.Sprintf("run_%d", i+1)
		first := b.attach(runner.Hello{Run: run})
		require.NoError(t, first.Start(runner.Start{Launch: b.shell(echo), Input: []byte(run + "\n")}))
		next = b.attach(runner.Hello{Run: run})
		if next.Welcome().Delivery == runner.NotStarted {
			continue
		}
		require.True(t, next.Welcome().Open, "%s is closed before it has begun", run)
	}
}
