package process

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/rawio"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

const (
	killBudget  = 10 * time.Second // for a process tree to exit after SIGKILL
	drainBudget = 2 * time.Second  // for the pipes of a dead agent to be drained
	stdinQueue  = 64               // pending writes to an agent that does not read
	// stdoutPipe is the number of bytes that an agent may print before a write blocks. A held-back
	// agent can exceed its window by this much. It is enough to read a few hundred lines at once.
	stdoutPipe = 16 << 10
)

var (
	// ErrEnded is returned if the process has exited.
	ErrEnded = errors.New("the agent has ended")
	// ErrStuck is returned if the process does not read its stdin.
	ErrStuck       = errors.New("the agent does not read its stdin")
	errSignalNames = errors.New("no signal has that name")
)

// FrameFunc records the agent's output and exit. data is valid until it returns. Several goroutines
// call it.
type FrameFunc func(stream runner.Stream, data []byte, truncated bool)

// PaceFunc waits until the agent may print more, or ending is closed. Meanwhile the agent's output
// waits in its pipe.
type PaceFunc func(ending <-chan struct{})

// Agent is one process of the agent, from its start to its exit frame. Its methods are safe for concurrent use.
type Agent struct {
	key    string
	logger *slog.Logger
	reaper *Reaper
	frame  FrameFunc
	pace   PaceFunc
	child  *child
	stdin  *os.File
	writes chan stdinWrite
	done   chan struct{} // closed when its exit frame has been recorded
	// ending is closed when the process has exited or is being stopped: its output is then no
	// longer held back.
	ending chan struct{}
	end    sync.Once

	// killing is held while the tree is being killed. A caller that waits for done thus knows that
	// no kill is in progress that could affect the next process.
	killing sync.Mutex

	mu      sync.Mutex
	stopped runner.StopReason // the first reason for stopping it
	pending *time.Timer       // the kill that an interrupt has scheduled
}

type stdinWrite struct {
	data []byte
	done func(error) // called once; may be nil
}

// LaunchKey returns a key that is equal for two launches if one process can serve both.
func LaunchKey(s *runner.Start) string {
	if s.Launch.Key != "" {
		return s.Launch.Key
	}
	same := struct {
		Argv         []string
		Env, Secrets map[string]string
		Dir          string
	}{s.Launch.Argv, s.Launch.Env, s.Secrets, s.Launch.Dir}
	b, err := json.Marshal(same)
	if err != nil {
		panic(err) // consists of strings
	}
	sum := sha256.Sum256(b) // do not retain secrets longer than necessary
	return string(sum[:])
}

// environment returns the agent's environment, which inherits only the variables that every process
// needs.
func environment(home string, s *runner.Start) []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	lang := os.Getenv("LANG")
	if lang == "" {
		lang = "C.UTF-8"
	}
	env := map[string]string{"PATH": path, "HOME": home, "LANG": lang, "TERM": "dumb"}
	maps.Copy(env, s.Launch.Env)
	maps.Copy(env, s.Secrets)
	delete(env, runner.TokenVariable)
	list := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}

// lookPath finds a program as the agent's own environment would.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil // relative to dir, which is the child's directory when it calls exec
	}
	for _, e := range env {
		path, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		for _, d := range filepath.SplitList(path) {
			if !filepath.IsAbs(d) {
				d = filepath.Join(dir, d)
			}
			file := filepath.Join(d, name)
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("%s: command not found", name)
}

// Start starts the process of a launch. It passes every line of its output to frame, and finally
// its exit, after which Done is closed. It calls pace before it reads each line of stdout; lines of
// stderr are always read.
func Start(r *Reaper, home string, s *runner.Start, logger *slog.Logger, frame FrameFunc, pace PaceFunc) (*Agent, error) {
	if len(s.Launch.Argv) == 0 {
		return nil, errors.New("launch names no program")
	}
	env := environment(home, s)
	path, err := lookPath(s.Launch.Argv[0], s.Launch.Dir, env)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(s.Launch.Dir); err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("working directory: %s is not a directory", s.Launch.Dir)
	}
	var files []*os.File
	closeAll := func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
	for range 3 {
		rd, wr, err := os.Pipe()
		if err != nil {
			closeAll()
			return nil, err
		}
		files = append(files, rd, wr)
	}
	_, _ = unix.FcntlInt(files[3].Fd(), unix.F_SETPIPE_SZ, stdoutPipe) // otherwise it has the system's default size
	c, err := r.start(path, s.Launch.Argv, &os.ProcAttr{
		Dir: s.Launch.Dir, Env: env, Files: []*os.File{files[0], files[3], files[5]},
		Sys: &unix.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL},
	})
	if err != nil {
		closeAll()
		return nil, err
	}
	_ = errors.Join(files[0].Close(), files[3].Close(), files[5].Close())
	a := &Agent{
		key: LaunchKey(s), logger: logger, reaper: r, frame: frame, pace: pace, child: c, stdin: files[1],
		writes: make(chan stdinWrite, stdinQueue), done: make(chan struct{}), ending: make(chan struct{}),
	}
	go a.supervise(files[2], files[4])
	return a, nil
}

// supervise owns the process. Its goroutines are the last to return.
func (a *Agent) supervise(stdout, stderr *os.File) {
	var pumps, writer sync.WaitGroup
	meter := newStderrMeter(time.Now())
	pumps.Go(func() { a.pumpStdout(stdout) })
	pumps.Go(func() { a.pumpStderr(stderr, meter) })
	ended := make(chan struct{})
	writer.Go(func() { a.writeStdin(ended) })

	<-a.child.done
	a.unpace()
	a.CallOff()
	_ = a.stdin.Close()
	close(ended)
	writer.Wait()
	// Processes left running would work in the workspace alongside the next agent.
	a.killing.Lock()
	a.killTree()
	a.killing.Unlock()
	drain := time.AfterFunc(drainBudget, func() { _ = errors.Join(stdout.Close(), stderr.Close()) })
	pumps.Wait()
	drain.Stop()
	_ = errors.Join(stdout.Close(), stderr.Close())
	a.frame(runner.Exit, a.report(meter.tail), false)
	close(a.done)
}

func (a *Agent) report(stderr []byte) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := runner.ExitReport{
		Code: a.child.status.ExitStatus(), Stderr: strings.ToValidUTF8(string(stderr), "\uFFFD"),
		Interrupted: a.stopped == runner.StoppedInterrupt, Stopped: a.stopped,
	}
	if a.child.status.Signaled() {
		r.Code, r.Signal = -1, a.child.status.Signal().String()
	}
	return encodeReport(r)
}

// FailedStart returns the exit report of a process that could not be started, as the data of an
// exit frame.
func FailedStart(err error) []byte {
	return encodeReport(runner.ExitReport{Code: 127, Stderr: err.Error()})
}

func encodeReport(r runner.ExitReport) []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // consists of strings and numbers
	}
	return b
}

func (a *Agent) pumpStdout(f *os.File) {
	r := bufio.NewReaderSize(rawio.NewReader(f), 64<<10)
	var buf []byte
	for {
		a.pace(a.ending)
		line, cut, err := readLine(r, &buf, runner.MaxLine)
		if err != nil {
			return
		}
		a.frame(runner.Stdout, line, cut)
	}
}

func (a *Agent) pumpStderr(f *os.File, m *stderrMeter) {
	r := bufio.NewReaderSize(f, 16<<10)
	var buf []byte
	for {
		line, cut, err := readLine(r, &buf, runner.MaxStderrLine)
		if err != nil {
			break
		}
		for _, l := range m.line(line, time.Now()) {
			a.frame(runner.Stderr, l, cut && bytes.Equal(l, line))
		}
	}
	if m.dropped > 0 {
		a.frame(runner.Stderr, m.note(), false)
	}
}

func (a *Agent) writeStdin(ended <-chan struct{}) {
	for {
		select {
		case w := <-a.writes:
			_, err := a.stdin.Write(w.data)
			if w.done != nil {
				w.done(err)
			}
		case <-ended:
			return
		}
	}
}

// Key returns the LaunchKey with which the process was started.
func (a *Agent) Key() string { return a.key }

// PID returns the process id.
func (a *Agent) PID() int { return a.child.pid }

// Done is closed when the exit frame has been recorded.
func (a *Agent) Done() <-chan struct{} { return a.done }

// Write queues bytes for the agent's stdin and never waits. done is called when they are written or
// cannot be; it is not called if the process exits first.
func (a *Agent) Write(data []byte, done func(error)) error {
	select {
	case <-a.child.done:
		return ErrEnded
	default:
	}
	select {
	case a.writes <- stdinWrite{data, done}:
		return nil
	default:
		return ErrStuck
	}
}

// Interrupt aborts the turn and schedules the kill that follows if the agent does not act on it.
func (a *Agent) Interrupt(i runner.Interrupt) error {
	var err error
	switch {
	case len(i.Stdin) > 0:
		err = a.Write(i.Stdin, nil)
	case i.Signal != "":
		sig := unix.SignalNum("SIG" + strings.TrimPrefix(i.Signal, "SIG"))
		if sig == 0 {
			return fmt.Errorf("%w: %q", errSignalNames, i.Signal)
		}
		err = unix.Kill(-a.child.pid, sig)
	}
	if i.Grace <= 0 {
		a.Kill(runner.StoppedInterrupt)
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending == nil { // repeating the request does not extend the grace period
		a.pending = time.AfterFunc(i.Grace, func() { a.Kill(runner.StoppedInterrupt) })
	}
	if errors.Is(err, ErrStuck) {
		return nil // the kill will abort the turn
	}
	return err
}

// CallOff cancels the kill that an interrupt has scheduled.
func (a *Agent) CallOff() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending != nil {
		a.pending.Stop()
		a.pending = nil
	}
}

// unpace makes the rest of the output be read without a pause.
func (a *Agent) unpace() { a.end.Do(func() { close(a.ending) }) }

func (a *Agent) because(reason runner.StopReason) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped == "" {
		a.stopped = reason
	}
}

// Kill kills the process and all its descendants. The exit frame follows.
func (a *Agent) Kill(reason runner.StopReason) {
	a.killing.Lock()
	defer a.killing.Unlock()
	select {
	case <-a.child.done:
		return
	default:
	}
	a.because(reason)
	a.killTree()
}

// killTree must be called with killing held.
func (a *Agent) killTree() {
	if err := a.reaper.killDescendants(killBudget); err != nil {
		a.logger.Error("processes of the agent are left", slog.Any("error", err))
	}
}

// Stop stops the process gracefully: it closes stdin, sends SIGTERM after grace, and SIGKILL after
// grace again. It returns when the exit frame has been recorded.
func (a *Agent) Stop(reason runner.StopReason, grace time.Duration) {
	a.because(reason)
	a.unpace()
	_ = a.stdin.Close()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-a.done:
		return
	case <-timer.C:
	}
	_ = unix.Kill(-a.child.pid, unix.SIGTERM)
	timer.Reset(grace)
	select {
	case <-a.done:
		return
	case <-timer.C:
	}
	a.Kill(reason)
	<-a.done
}

// Running reports whether the process has not exited.
func (a *Agent) Running() bool {
	if a == nil {
		return false
	}
	select {
	case <-a.child.done:
		return false
	default:
		return true
	}
}

// exitBudget bounds AwaitExit. A process whose first thread has exited before the others, which is
// rare, looks like one that is being ended.
const exitBudget = time.Second

// AwaitExit returns when the process has exited, if the kernel is ending it, and at once otherwise. A
// process that was killed reads no more input, but a large one can only be reaped several
// milliseconds later.
func (a *Agent) AwaitExit() {
	if !a.Running() || !isExiting(a.PID()) {
		return
	}
	timer := time.NewTimer(exitBudget)
	defer timer.Stop()
	select {
	case <-a.child.done:
	case <-timer.C:
	}
}

// Ended reports whether the exit frame has been recorded.
func (a *Agent) Ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}
