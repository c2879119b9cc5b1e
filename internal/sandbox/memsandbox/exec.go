package memsandbox

import (
	"context"
	"errors"
	"io"
	"maps"
	"path"
	"sync"

	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

// Handler implements a command: it runs as one process and returns the exit code. Its context ends
// when the process is killed, after which its result is ignored.
type Handler func(ctx context.Context, p *Proc) int

// Proc is a process from its handler's point of view.
type Proc struct {
	SandboxID      string
	Args           []string // including the command
	Dir            string
	Env            map[string]string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Files          *Files
}

// Handle registers the handler of a command, whose name is compared with the last path element of
// argv[0]. An unregistered command exits with 127.
func (d *Driver) Handle(name string, h Handler) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handlers[name] = h
}

// Exec implements driver.Driver.
func (d *Driver) Exec(ctx context.Context, id string, r driver.ExecRequest) (driver.Exec, error) {
	//nolint:contextcheck // a process outlives the call that starts it
	return call(ctx, d, OpExec, id, func() (driver.Exec, error) {
		b, err := d.live("exec", id)
		if err != nil {
			return nil, err
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		p, err := d.start(b, r)
		if err != nil {
			return nil, err
		}
		return p, nil
	})
}

// process is a running handler.
type process struct {
	d        *Driver
	id       string
	in       *pipe
	out, err *pipe
	done     chan struct{}
	code     int
}

var errKilled = errors.New("killed")

// start must be called with mu held.
func (d *Driver) start(b *instance, r driver.ExecRequest) (*process, error) {
	if d.closed {
		return nil, driver.Errorf(driver.Unavailable, "exec", b.id, "the provider is closed")
	}
	h := d.handlers[path.Base(r.Argv[0])]
	if h == nil {
		h = func(_ context.Context, p *Proc) int {
			_, _ = io.WriteString(p.Stderr, p.Args[0]+": command not found\n")
			return 127
		}
	}
	env := maps.Clone(b.env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, r.Env)
	dir := r.Dir
	if dir == "" {
		dir = b.workdir
	}
	if dir == "" {
		dir = "/"
	}
	p := &process{d: d, id: b.id, in: newPipe(), out: newPipe(), err: newPipe(), done: make(chan struct{})}
	ctx, kill := context.WithTimeoutCause(context.Background(), r.Timeout, errKilled)
	result := make(chan int, 1) // a killed process's handler may return later
	d.running.Go(func() {
		result <- h(ctx, &Proc{
			SandboxID: b.id, Args: r.Argv, Dir: dir, Env: env,
			Stdin: p.in, Stdout: p.out, Stderr: p.err, Files: &Files{b.files},
		})
	})
	d.running.Go(func() {
		defer kill()
		select {
		case p.code = <-result:
		case <-ctx.Done():
			p.code = 137
		case <-b.ended:
			p.code = 137
		}
		p.in.fail(io.ErrClosedPipe)
		p.out.finish()
		p.err.finish()
		close(p.done)
	})
	return p, nil
}

func (p *process) Stdin() io.WriteCloser { return stdin{p} }
func (p *process) Stdout() io.ReadCloser { return p.out }
func (p *process) Stderr() io.ReadCloser { return p.err }

func (p *process) Wait(ctx context.Context) (int, error) {
	return call(ctx, p.d, OpWait, p.id, func() (int, error) {
		select {
		case <-p.done:
			if _, err := p.d.live("wait", p.id); err != nil {
				return 0, err // the provider has no record of its processes
			}
			return p.code, nil
		case <-ctx.Done():
			return 0, &driver.Error{Code: driver.Unavailable, Op: "wait", ID: p.id, Err: ctx.Err()}
		}
	})
}

type stdin struct{ p *process }

func (s stdin) Write(b []byte) (int, error) {
	n, err := s.p.in.Write(b)
	if err != nil {
		return n, &driver.Error{Code: driver.Conflict, Op: "write input", ID: s.p.id, Err: err}
	}
	return n, nil
}

func (s stdin) Close() error {
	s.p.in.finish()
	return nil
}

// pipe is an unbounded stream: a writer never waits for its reader.
type pipe struct {
	mu     sync.Mutex
	data   []byte
	err    error         // returned after data
	change chan struct{} // closed and replaced at every change
}

func newPipe() *pipe { return &pipe{change: make(chan struct{})} }

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, io.ErrClosedPipe
	}
	p.data = append(p.data, b...)
	p.wake()
	return len(b), nil
}

func (p *pipe) Read(b []byte) (int, error) {
	for {
		p.mu.Lock()
		if len(p.data) > 0 {
			n := copy(b, p.data)
			p.data = p.data[n:]
			p.mu.Unlock()
			return n, nil
		}
		err, change := p.err, p.change
		p.mu.Unlock()
		if err != nil {
			return 0, err
		}
		<-change
	}
}

// finish lets readers read the remaining data, then io.EOF.
func (p *pipe) finish() { p.end(io.EOF, false) }

// fail drops the remaining data.
func (p *pipe) fail(err error) { p.end(err, true) }

// Close is called by the reader when it stops reading.
func (p *pipe) Close() error {
	p.end(io.ErrClosedPipe, true)
	return nil
}

func (p *pipe) end(err error, drop bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if drop {
		p.data = nil
	}
	if p.err == nil || drop {
		p.err = err
	}
	p.wake()
}

// wake must be called with mu held.
func (p *pipe) wake() {
	close(p.change)
	p.change = make(chan struct{})
}
