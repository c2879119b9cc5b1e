package task

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// Retention is how long a finished process can be queried.
const Retention = 10 * time.Minute

// Options describe a task.
type Options struct {
	Box     *box.Box
	Env     map[string]string // for every process, overrides the defaults
	Workdir string            // default "/"
	Scratch string            // a directory for large output; default os.TempDir
	Inbound []netip.Prefix    // who may use tunnels and connect tokens; nil for all addresses
}

// Task is a running sandbox. It is safe for concurrent use.
type Task struct {
	Box *box.Box

	env     map[string]string
	workdir string
	scratch string
	inbound []netip.Prefix
	ctx     context.Context //nolint:containedctx // done when the task closes, with its goroutines
	cancel  context.CancelFunc
	group   sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	executions map[string]*starting
	busy       int
	used       time.Time
	tunnels    []Tunnel
	connect    *connectServer
}

// starting is a process that is being started; ready is closed when it runs or has failed.
type starting struct {
	ready chan struct{}
	*Execution
	err error
}

// New returns the task around a started box.
func New(o Options) *Task {
	ctx, cancel := context.WithCancel(context.Background())
	t := &Task{
		Box: o.Box, workdir: o.Workdir, scratch: o.Scratch, inbound: o.Inbound, ctx: ctx, cancel: cancel,
		executions: map[string]*starting{}, used: time.Now(),
	}
	t.env = map[string]string{"PATH": box.DefaultPath, "HOME": "/root", "LANG": "C.UTF-8"}
	maps.Copy(t.env, o.Env)
	if t.workdir == "" {
		t.workdir = "/"
	}
	if t.scratch == "" {
		t.scratch = os.TempDir()
	}
	return t
}

// Command describes a process to start.
type Command struct {
	Args       []string
	FileTools  string            // if set, the file tools run with it instead of Args
	Env        map[string]string // overrides the task's
	Workdir    string            // default: the task's
	Terminal   bool
	Rows, Cols int
	Timeout    time.Duration // killed after that; zero means never
	NoStdout   bool          // discard its output
	NoStderr   bool
	Background bool // the process does not count as use of the task (see Idle)
}

// ErrClosed is returned for a task that has ended.
var ErrClosed = errors.New("task has ended")

// Start runs a command with an id of the caller; a second start with the same id returns the
// process of the first.
func (t *Task) Start(id string, c Command) (*Execution, error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, ErrClosed
	}
	t.forget()
	s, found := t.executions[id]
	if !found {
		s = &starting{ready: make(chan struct{})}
		t.executions[id] = s
		t.group.Add(1) // until the process has finished
		if !c.Background {
			t.busy++
		}
	}
	t.mu.Unlock()
	if found {
		<-s.ready
		return s.Execution, s.err
	}
	finished := func() { t.finished(c.Background) }
	s.Execution, s.err = t.run(c, finished)
	close(s.ready)
	if s.err != nil {
		t.mu.Lock()
		delete(t.executions, id)
		t.mu.Unlock()
		finished()
	}
	return s.Execution, s.err
}

func (t *Task) run(c Command, finished func()) (*Execution, error) {
	var stdout, stderr *Output
	if !c.NoStdout {
		stdout = newOutput(t.scratch)
	}
	if !c.NoStderr {
		stderr = newOutput(t.scratch)
	}
	if c.Timeout <= 0 {
		return begin(t.Box, t.spec(c), stdout, stderr, finished)
	}
	overdue := make(chan *Execution, 1)
	timer := time.AfterFunc(c.Timeout, func() { _ = (<-overdue).Kill() }) // fails only if the process has ended
	e, err := begin(t.Box, t.spec(c), stdout, stderr, func() {
		timer.Stop()
		finished()
	})
	if err != nil {
		timer.Stop()
		return nil, err
	}
	overdue <- e
	return e, nil
}

func (t *Task) finished(background bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !background {
		t.busy--
		t.used = time.Now()
	}
	t.group.Done()
}

// forget drops processes that ended longer than Retention ago. The caller holds t.mu.
func (t *Task) forget() {
	maps.DeleteFunc(t.executions, func(_ string, s *starting) bool {
		select {
		case <-s.ready:
		default:
			return false
		}
		select {
		case <-s.Done():
		default:
			return false
		}
		if time.Since(s.ended) < Retention {
			return false
		}
		_ = s.release() // the file has no name and no reader
		return true
	})
}

func (e *Execution) release() error {
	var err error
	for _, o := range []*Output{e.Stdout, e.Stderr} {
		if o != nil {
			err = errors.Join(err, o.Release())
		}
	}
	return err
}

func (t *Task) spec(c Command) wire.ExecSpec {
	env := maps.Clone(t.env)
	if c.Terminal {
		env["TERM"] = "xterm-256color"
	}
	maps.Copy(env, c.Env)
	list := make([]string, 0, len(env))
	for _, key := range slices.Sorted(maps.Keys(env)) {
		list = append(list, key+"="+env[key])
	}
	dir := c.Workdir
	if dir == "" {
		dir = t.workdir
	}
	return wire.ExecSpec{
		Args: c.Args, FileTools: c.FileTools, Env: list, Dir: dir,
		Terminal: c.Terminal, Rows: c.Rows, Cols: c.Cols,
	}
}

// Execution returns the process that was started with id.
func (t *Task) Execution(id string) (*Execution, bool) {
	t.mu.Lock()
	s, ok := t.executions[id]
	t.mu.Unlock()
	if !ok {
		return nil, false
	}
	<-s.ready
	return s.Execution, s.err == nil
}

// Touch records that the task is in use.
func (t *Task) Touch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used = time.Now()
}

// hold counts a use until the returned function is called.
func (t *Task) hold() func() {
	t.mu.Lock()
	t.busy++
	t.mu.Unlock()
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.busy--
		t.used = time.Now()
	}
}

// Idle returns how long the task has been unused: without a call, a process except background ones,
// or an open connection.
func (t *Task) Idle() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy > 0 {
		return 0
	}
	return time.Since(t.used)
}

// Close kills every process, closes every connection, and waits for that. The output of processes
// can still be read. It may be called more than once.
func (t *Task) Close() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	err := t.closeListeners()
	t.Box.Kill()
	t.group.Wait()
	if err != nil {
		return fmt.Errorf("close task: %w", err)
	}
	return nil
}

// Release frees the output that a closed task keeps for readers.
func (t *Task) Release() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	for _, s := range t.executions {
		<-s.ready
		if s.err == nil {
			err = errors.Join(err, s.release())
		}
	}
	clear(t.executions)
	return err
}
