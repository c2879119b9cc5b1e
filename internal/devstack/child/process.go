package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// outputGrace limits the wait for the output of an ended process, because a process that has left
// its group may hold the pipe open.
const outputGrace = time.Second

// process is one run of a child's program.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File // write end, nil without
	ended  chan struct{}
	status *os.ProcessState // set before ended is closed
}

// startProcess starts the command with its output going to the log.
func startProcess(c Command, spawn *spawner, log *logFile) (_ *process, err error) {
	output, outputEnd, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make output pipe: %w", err)
	}
	defer func() { _ = outputEnd.Close() }() // the process has its own by then
	var stdinEnd, stdin *os.File
	if c.HoldStdin {
		if stdinEnd, stdin, err = os.Pipe(); err != nil {
			return nil, errors.Join(fmt.Errorf("make stdin pipe: %w", err), output.Close())
		}
		defer func() { _ = stdinEnd.Close() }() // as above
	}

	// Not CommandContext: this package controls how a child ends.
	cmd := &exec.Cmd{Path: c.Path, Args: append([]string{c.Path}, c.Args...), Env: c.Env, Dir: c.Dir}
	cmd.Stdout, cmd.Stderr = outputEnd, outputEnd
	if stdinEnd != nil {
		cmd.Stdin = stdinEnd
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:    true,
		Pdeathsig:  c.DeathSignal,
		Credential: c.Credential,
	}
	if err := spawn.start(cmd); err != nil {
		if stdin != nil {
			_ = stdin.Close()
		}
		return nil, errors.Join(fmt.Errorf("start %s: %w", c.Path, err), output.Close())
	}

	p := &process{cmd: cmd, stdin: stdin, ended: make(chan struct{})}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		log.copyFrom(output)
	}()
	go p.wait(output, copied)
	return p, nil
}

// wait reaps the process and kills the rest of its group.
func (p *process) wait(output *os.File, copied <-chan struct{}) {
	defer close(p.ended)
	// The group is killed before its leader is reaped, so its id cannot have been reused.
	for unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.signalGroup(syscall.SIGKILL)
	_ = p.cmd.Wait() // a bad exit code is in the state
	p.status = p.cmd.ProcessState
	if p.stdin != nil {
		_ = p.stdin.Close()
	}
	_ = output.SetReadDeadline(time.Now().Add(outputGrace))
	<-copied
	_ = output.Close()
}

// signal sends a signal to the process only.
func (p *process) signal(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s) // an error means that it has ended
}

// signalGroup sends a signal to the process and its group.
func (p *process) signalGroup(s syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, s) // as above
}

// kill kills the process and waits for its end.
func (p *process) kill() {
	p.signal(syscall.SIGKILL) // the rest of the group follows in wait
	<-p.ended
}

// killed reports whether a signal ended the process.
func (p *process) killed() bool {
	status, ok := p.status.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}
