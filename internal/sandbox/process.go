package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

const (
	// defaultExecTimeout is the default timeout of a process.
	defaultExecTimeout = 10 * time.Minute
	// MaxArgvBytes bounds the arguments of a process. Use Stdin for larger input.
	MaxArgvBytes = 64 << 10

	// grace is the additional time for a provider to enforce a deadline.
	grace = 15 * time.Second
	// stdinChunk bounds a write to a process, below the message limits of all providers.
	stdinChunk = 256 << 10
)

// ExecSpec describes a process to start.
type ExecSpec struct {
	Argv []string // at most MaxArgvBytes in total
	Dir  string   // absolute; if empty, the sandbox's own
	Env  map[string]string
	// Timeout is how long the process may run before the provider kills it, rounded up to whole
	// seconds. Default 10 min, at most 24 h.
	Timeout time.Duration
}

// Process is a process in a sandbox. One goroutine may write, one may read each stream, and any
// number may wait, concurrently.
type Process struct {
	Stdin          io.WriteCloser
	Stdout, Stderr io.Reader

	sb         *Sandbox
	exec       driver.Exec
	started    time.Time
	timeout    time.Duration
	cancel     context.CancelCauseFunc
	lastOutput atomic.Int64  // time of the last output, in Unix nanoseconds
	done       chan struct{} // closed when code and err are set
	code       int
	err        error

	mu     sync.Mutex
	broken error // why the link was closed; set before the streams are closed
}

var errClosed = errors.New("the process was released")

// Exec starts a process; ctx applies only to the start. The process lives until it exits, is killed
// at its timeout, or its sandbox dies. Close releases it, and must be called unless Wait has
// returned the exit.
func (s *Sandbox) Exec(ctx context.Context, spec ExecSpec) (*Process, error) {
	const op = "exec"
	r, err := spec.request()
	if err != nil {
		return nil, driver.Errorf(Invalid, op, s.id, "%w", err)
	}
	started := time.Now()
	exec, err := s.p.drv.Exec(ctx, s.id, r)
	if err != nil {
		return nil, s.settle(ctx, op, err)
	}
	link, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	p := &Process{
		sb: s, exec: exec, cancel: cancel, done: make(chan struct{}), started: started, timeout: r.Timeout,
	}
	p.Stdin = stdin{p}
	p.Stdout = stream{p, exec.Stdout()}
	p.Stderr = stream{p, exec.Stderr()}
	go p.watch(link)
	return p, nil
}

func (spec ExecSpec) request() (driver.ExecRequest, error) {
	var none driver.ExecRequest
	size := 0
	for _, a := range spec.Argv {
		size += len(a)
	}
	switch {
	case len(spec.Argv) == 0 || spec.Argv[0] == "":
		return none, errors.New("no command")
	case size > MaxArgvBytes:
		return none, fmt.Errorf("%d bytes of arguments are more than %d", size, MaxArgvBytes)
	case spec.Dir != "" && !path.IsAbs(spec.Dir):
		return none, fmt.Errorf("directory %q is not absolute", spec.Dir)
	case spec.Timeout < 0 || spec.Timeout > MaxTimeout:
		return none, fmt.Errorf("timeout %v is not between 0 and %v", spec.Timeout, MaxTimeout)
	}
	if err := checkEnv(spec.Env); err != nil {
		return none, err
	}
	return driver.ExecRequest{
		Argv: spec.Argv, Dir: spec.Dir, Env: spec.Env,
		Timeout: wholeSeconds(spec.Timeout, defaultExecTimeout),
	}, nil
}

// watch waits for the exit of the process and polls the sandbox meanwhile, because a provider may
// block a wait forever if the machine is gone.
func (p *Process) watch(link context.Context) {
	defer close(p.done)
	defer p.cancel(errClosed)
	ctx, cancel := within(link, p.timeout+grace, "wait for the process")
	defer cancel()
	type exit struct {
		code int
		err  error
	}
	waited := make(chan exit, 1) // has room for the only result if no caller waits any more
	waitCtx, stopWaiting := context.WithCancel(ctx)
	go func() {
		code, err := p.exec.Wait(waitCtx)
		waited <- exit{code, err}
	}()
	tick := time.NewTicker(p.sb.p.pollInterval)
	defer tick.Stop()
	for {
		select {
		case e := <-waited:
			stopWaiting()
			p.code, p.err = p.verdict(ctx, e.code, e.err)
			if e.err != nil { // otherwise its output ends by itself
				p.cut(p.err)
			}
			return
		case now := <-tick.C:
			if now.UnixNano()-p.lastOutput.Load() < int64(p.sb.p.pollInterval) {
				continue // a dead process has no output
			}
			gone := p.sb.dead(ctx)
			if gone == nil {
				continue
			}
			stopWaiting()
			if e := <-waited; e.err == nil { // it exited before its sandbox ended
				p.code = e.code
				return
			}
			p.err = gone
			p.cut(gone)
			return
		}
	}
}

// verdict converts the end of the driver's wait to the end of the process.
func (p *Process) verdict(ctx context.Context, code int, err error) (int, error) {
	overran := time.Since(p.started) >= p.timeout
	switch {
	case err == nil && overran && code == driver.ExitTerminated, err != nil && overran && ctx.Err() == nil && driver.CodeOf(err) == Timeout:
		return 0, driver.Errorf(Timeout, "exec", p.sb.id, "the process was killed after %v", p.timeout)
	case err != nil:
		return 0, p.sb.settle(ctx, "exec", err)
	}
	return code, nil
}

// dead returns an error if the provider reports that the sandbox has ended, nil if it is running or
// its state is unknown.
func (s *Sandbox) dead(ctx context.Context) error {
	ctx, cancel := within(ctx, pollTimeout, "poll")
	defer cancel()
	st, err := s.p.drv.Poll(ctx, s.id)
	switch {
	case err == nil && !st.Running:
		return driver.Errorf(Gone, "exec", s.id, "the sandbox has ended with code %d", st.ExitCode)
	case driver.CodeOf(err) == Gone:
		return fault(ctx, "exec", s.id, err)
	}
	return nil
}

// cut unblocks reads, which return err.
func (p *Process) cut(err error) {
	p.mu.Lock()
	p.broken = err
	p.mu.Unlock()
	_ = p.exec.Stdout().Close() // only unblocks the reader
	_ = p.exec.Stderr().Close()
}

func (p *Process) cutError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.broken
}

// Wait returns the exit code of the process, 128+n if signal n killed it. It fails with Timeout if
// the process was killed at its timeout, or if its state has been unknown since, and with Gone if
// its sandbox has ended.
func (p *Process) Wait(ctx context.Context) (exitCode int, err error) {
	select {
	case <-p.done:
		return p.code, p.err
	default:
	}
	select {
	case <-p.done:
		return p.code, p.err
	case <-ctx.Done():
		return 0, fault(ctx, "exec", p.sb.id, ctx.Err())
	}
}

// Close closes the link to the process, which keeps running if it has not exited. It may be called
// at any time, and more than once.
func (p *Process) Close() error {
	p.cancel(errClosed)
	<-p.done
	p.mu.Lock()
	if p.broken == nil {
		p.broken = driver.Errorf(Unavailable, "exec", p.sb.id, "%w", errClosed)
	}
	p.mu.Unlock()
	return errors.Join(p.exec.Stdout().Close(), p.exec.Stderr().Close())
}

// stream is an output of a process.
type stream struct {
	p *Process
	r io.Reader
}

func (s stream) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if n > 0 {
		s.p.lastOutput.Store(time.Now().UnixNano())
	}
	if err == nil {
		return n, nil
	}
	if broken := s.p.cutError(); broken != nil {
		return n, broken
	}
	if errors.Is(err, io.EOF) {
		return n, io.EOF
	}
	return n, &Error{Code: driver.CodeOf(err), Op: "read output", ID: s.p.sb.id, Err: err}
}

// stdin is the input of a process.
type stdin struct{ p *Process }

func (s stdin) Write(b []byte) (written int, err error) {
	for len(b) > 0 {
		if err := s.p.cutError(); err != nil {
			return written, err
		}
		n, err := s.p.exec.Stdin().Write(b[:min(len(b), stdinChunk)])
		written += n
		if err != nil {
			return written, &Error{Code: driver.CodeOf(err), Op: "write input", ID: s.p.sb.id, Err: err}
		}
		b = b[n:]
	}
	return written, nil
}

// Close closes the input of the process. It has no effect if the process has exited.
func (s stdin) Close() error {
	err := s.p.exec.Stdin().Close()
	code := driver.CodeOf(err)
	if err == nil || code == Conflict || code == Gone {
		return nil
	}
	return &Error{Code: code, Op: "close input", ID: s.p.sb.id, Err: err}
}
