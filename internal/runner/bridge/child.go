package bridge

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Exit codes of a bridge.
const (
	ExitDone   = 0 // stdin is closed, and the agent has stopped gracefully
	ExitFailed = 1 // the agent could not be started, or communication with it failed
	ExitUsage  = 2 // flags or environment are invalid
	ExitDied   = 3 // the agent has exited by itself
)

// Spec is an agent's process.
type Spec struct {
	Argv []string
	Env  []string // the complete environment; nil for the bridge's own
	Dir  string   // empty for the bridge's own
	// Stderr receives the agent's stderr; nil for the bridge's own.
	Stderr io.Writer
}

// Child is an agent's process. The kernel kills it when the bridge dies.
type Child struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser // must be read to its end; the process is reaped independently of it

	cmd  *exec.Cmd
	done chan struct{}
	err  error // how it exited; read after done
}

// Start starts an agent.
func Start(spec Spec) (*Child, error) {
	if len(spec.Argv) == 0 {
		return nil, errors.New("start the agent: no program")
	}
	cmd := exec.Command(spec.Argv[0], spec.Argv[1:]...) //nolint:noctx // not bound to a context: Stop stops it gracefully, the kernel kills it with the bridge
	cmd.Env, cmd.Dir, cmd.Stderr = spec.Env, spec.Dir, spec.Stderr
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdinRead, stdinWrite, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Argv[0], err)
	}
	stdoutRead, stdoutWrite, err := os.Pipe()
	if err != nil {
		_ = stdinRead.Close()
		_ = stdinWrite.Close()
		return nil, fmt.Errorf("start %s: %w", spec.Argv[0], err)
	}
	cmd.Stdin, cmd.Stdout = stdinRead, stdoutWrite
	c := &Child{Stdin: stdinWrite, Stdout: stdoutRead, cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// For the kernel, the thread that started the child is its parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		_ = stdinRead.Close()
		_ = stdoutWrite.Close()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		_ = stdinWrite.Close()
		_ = stdoutRead.Close()
		return nil, fmt.Errorf("start %s: %w", spec.Argv[0], err)
	}
	return c, nil
}

// Done is closed when the process has exited. Its last lines may still be in Stdout.
func (c *Child) Done() <-chan struct{} { return c.done }

// Ended waits until the process has exited and returns how, such as "exit status 1".
func (c *Child) Ended() string {
	<-c.done
	if c.err != nil {
		return c.err.Error()
	}
	return "exit status 0"
}

// Signal sends a signal to the process, unless it has exited.
func (c *Child) Signal(s os.Signal) {
	_ = c.cmd.Process.Signal(s) // it may have exited just now
}

// Stop stops the process gracefully: it closes stdin, sends SIGTERM after grace, and SIGKILL after
// grace again. It returns when the process has exited. Stdout must be read meanwhile.
func (c *Child) Stop(grace time.Duration) {
	_ = c.Stdin.Close() // may already be closed
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		timer := time.NewTimer(grace)
		select {
		case <-c.done:
			timer.Stop()
			return
		case <-timer.C:
			c.Signal(s)
		}
	}
	<-c.done
}
