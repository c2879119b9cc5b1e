package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

// asRunner names the environment variable that makes the test binary act as the program, so that
// every test uses real processes.
const asRunner = "OVERWINTER_TEST_AS_RUNNER"

func TestMain(m *testing.M) {
	if os.Getenv(asRunner) != "" {
		_ = os.Unsetenv(asRunner)
		main()
	}
	if os.Getenv(asDyingAgent) != "" {
		dyingAgent()
	}
	leaktest.Main(m)
}

// poll is how often a test checks a condition that sends no signal.
const poll = 5 * time.Millisecond

// deadline bounds every wait of a test. Waits are short on an idle machine, but the tests of all
// packages share the machine.
const deadline = 2 * time.Minute

// sandbox is a directory that serves as a sandbox, with a runner serving in it.
type sandbox struct {
	t     *testing.T
	paths runner.Paths
	token string
	hash  string
	serve *exec.Cmd
	log   *lockedBuffer
	wrap  []string // prefix of commands, to enter the runner's namespace
}

func setup(t *testing.T) *sandbox {
	t.Helper()
	root, err := os.MkdirTemp("", "owr") //nolint:usetesting // the path of a socket is at most 107 bytes, too short for the name of a test
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	self, err := os.Executable()
	require.NoError(t, err)
	b := &sandbox{t: t, paths: runner.Paths{
		Binary: self, State: filepath.Join(root, "state"),
		Workspace: filepath.Join(root, "workspace"), Home: filepath.Join(root, "home"),
	}, log: &lockedBuffer{}}
	require.NoError(t, os.MkdirAll(b.paths.Workspace, 0o755))
	require.NoError(t, os.MkdirAll(b.paths.Home, 0o755))
	b.token, b.hash = runner.NewToken()
	b.start()
	t.Cleanup(func() {
		b.stop(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("log of the runner:\n%s", b.log.String())
		}
	})
	return b
}

func (b *sandbox) command(ctx context.Context, argv []string) *exec.Cmd {
	argv = append(slices.Clone(b.wrap), argv...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), asRunner+"=1")
	return cmd
}

// start starts a runner and waits until it answers.
func (b *sandbox) start() {
	b.t.Helper()
	// An agent that waits for its window must not be released because a test waits for its turn.
	b.serve = b.command(context.Background(), append(b.paths.Serve(), "--max-pause=1h"))
	b.serve.Env = append(b.serve.Env, runner.TokenVariable+"="+b.hash)
	b.serve.Stderr = b.log
	require.NoError(b.t, b.serve.Start())
	require.Equal(b.t, b.serve.Process.Pid, b.ping().PID)
}

// stop stops the runner with a signal, if it is running.
func (b *sandbox) stop(sig syscall.Signal) {
	if b.serve == nil {
		return
	}
	_ = b.serve.Process.Signal(sig)
	_ = b.serve.Wait()
	b.serve = nil
}

// run runs a command of the program until it exits.
func (b *sandbox) run(e runner.Exec) (stdout []byte, stderr string, code int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*deadline)
	defer cancel()
	cmd := b.command(ctx, e.Argv)
	cmd.Stdin = bytes.NewReader(e.Stdin)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return out, errs.String(), exit.ExitCode()
	}
	require.NoError(b.t, err)
	return out, errs.String(), 0
}

// ok runs a command that must succeed.
func (b *sandbox) ok(e runner.Exec) []byte {
	b.t.Helper()
	out, stderr, code := b.run(e)
	require.Zero(b.t, code, stderr)
	return out
}

func (b *sandbox) ping() runner.Ping {
	b.t.Helper()
	p, err := runner.ParsePing(b.ok(b.paths.Ping(runner.PingRequest{Token: b.token, Wait: deadline})))
	require.NoError(b.t, err)
	return p
}

func (b *sandbox) abort(run string, i runner.Interrupt) bool {
	b.t.Helper()
	a, err := runner.ParseAbort(b.ok(b.paths.Abort(runner.AbortRequest{Token: b.token, Run: run, Interrupt: i})))
	require.NoError(b.t, err)
	return a.Reached
}

func (b *sandbox) seal(r runner.SealRequest) (runner.Seal, []runner.Segment) {
	b.t.Helper()
	r.Token = b.token
	var segments []runner.Segment
	s, err := runner.ReadSeal(bytes.NewReader(b.ok(b.paths.Seal(r))), func(m runner.Message) error {
		if s, ok := m.(*runner.Segment); ok {
			segments = append(segments, *s)
		}
		return nil
	})
	require.NoError(b.t, err)
	return s, segments
}

// worker is an attached link with its exec.
type worker struct {
	*runner.Link
	t      *testing.T
	cmd    *exec.Cmd
	stderr *lockedBuffer
	seen   []runner.Message // all messages except Alive
	frames []runner.Frame
	stored int // number of messages in seen that sync has stored
	end    error
}

func (b *sandbox) attach(h runner.Hello) *worker {
	b.t.Helper()
	w, err := b.tryAttach(h)
	require.NoError(b.t, err)
	return w
}

func (b *sandbox) tryAttach(h runner.Hello) (*worker, error) {
	b.t.Helper()
	if h.Token == "" {
		h.Token = b.token
	}
	w := &worker{t: b.t, cmd: b.command(context.Background(), b.paths.Attach(h)), stderr: &lockedBuffer{}}
	w.cmd.Stderr = w.stderr
	stdin, err := w.cmd.StdinPipe()
	require.NoError(b.t, err)
	stdout, err := w.cmd.StdoutPipe()
	require.NoError(b.t, err)
	require.NoError(b.t, w.cmd.Start())
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	w.Link, err = runner.Dial(ctx, stdin, stdout, h, nil)
	b.t.Cleanup(func() {
		if w.Link != nil {
			_ = w.Close()
		}
		_ = w.cmd.Wait()
	})
	return w, err
}

// next returns the next message that is not Alive. It returns nil when the link has ended, and end
// then has the reason.
func (w *worker) next() runner.Message {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	for {
		m, err := w.Next(ctx)
		require.NotErrorIs(w.t, err, context.DeadlineExceeded, "seen so far: %v", w.seen)
		if err != nil {
			w.end = err
			return nil
		}
		if _, ok := m.(*runner.Alive); ok {
			continue
		}
		w.seen = append(w.seen, m)
		if f, ok := m.(*runner.Frame); ok {
			w.frames = append(w.frames, *f)
		}
		return m
	}
}

// until reads messages up to the first that matches.
func (w *worker) until(wanted func(runner.Message) bool) runner.Message {
	w.t.Helper()
	for {
		m := w.next()
		require.NotNil(w.t, m, "link ended: %v; seen so far: %v", w.end, w.seen)
		if wanted(m) {
			return m
		}
	}
}

// line waits for a line of the agent.
func (w *worker) line(text string) *runner.Frame {
	w.t.Helper()
	return w.until(func(m runner.Message) bool {
		f, ok := m.(*runner.Frame)
		return ok && f.Stream != runner.Exit && string(f.Data) == text
	}).(*runner.Frame)
}

// delivery waits until the delivery has reached that state. The agent may have answered before the
// runner reports it.
func (w *worker) delivery(d runner.Delivery) {
	w.t.Helper()
	is := func(m runner.Message) bool {
		c, ok := m.(*runner.DeliveryChanged)
		return ok && c.Delivery == d
	}
	if !slices.ContainsFunc(w.seen, is) {
		w.until(is)
	}
}

// displaced reads the remaining messages of a link that a newer one has displaced.
func (w *worker) displaced() {
	w.t.Helper()
	for w.next() != nil {
	}
	require.ErrorIs(w.t, w.end, runner.ErrDisplaced)
	require.Equal(w.t, runner.ExitDisplaced, w.exitCode())
}

func (w *worker) exit() runner.ExitReport {
	w.t.Helper()
	f := w.until(func(m runner.Message) bool {
		f, ok := m.(*runner.Frame)
		return ok && f.Stream == runner.Exit
	}).(*runner.Frame)
	var r runner.ExitReport
	require.NoError(w.t, json.Unmarshal(f.Data, &r))
	return r
}

// exitCode waits for the attach to exit.
func (w *worker) exitCode() int {
	w.t.Helper()
	done := make(chan struct{})
	go func() {
		_ = w.cmd.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(deadline):
		w.t.Fatal("attach does not end")
	}
	return w.cmd.ProcessState.ExitCode()
}

func (b *sandbox) shell(script string) runner.Launch {
	return runner.Launch{Argv: []string{"/bin/sh", "-c", script}, Dir: b.paths.Workspace}
}

// echo answers every line with "got LINE".
const echo = `while read -r line; do echo "got $line"; done`

func (b *sandbox) started(run, script, input string) *worker {
	b.t.Helper()
	w := b.attach(runner.Hello{Run: run})
	require.NoError(b.t, w.Start(runner.Start{Launch: b.shell(script), Input: []byte(input)}))
	return w
}

// file waits for a file in the workspace and returns its content.
func (b *sandbox) file(name string) string {
	b.t.Helper()
	path := filepath.Join(b.paths.Workspace, name)
	require.Eventually(b.t, func() bool {
		_, err := os.Stat(path)
		return err == nil
	}, deadline, poll, "%s does not appear", name)
	data, err := os.ReadFile(path)
	require.NoError(b.t, err)
	return string(data)
}

func texts(frames []runner.Frame) []string {
	var list []string
	for _, f := range frames {
		list = append(list, string(f.Data))
	}
	return list
}

// lockedBuffer is an io.Writer that can be read concurrently.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

var _ io.Writer = (*lockedBuffer)(nil)

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
