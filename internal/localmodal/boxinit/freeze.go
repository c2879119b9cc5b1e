package boxinit

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// freezeTimeout bounds the wait for threads that are in the middle of a system call when they
	// get the stop signal.
	freezeTimeout = 15 * time.Second
	freezePoll    = 200 * time.Microsecond
)

// freeze stops every process and returns when each of their threads has been observed as stopped:
// SIGSTOP is only a request, and a write in progress would make a copy of the files inconsistent.
// Processes that were stopped before, and that no other process continues meanwhile, stay stopped
// after thaw.
func (p *initProcess) freeze() error {
	p.running.Lock()
	if p.directory != nil {
		err := p.directory.tracer.Freeze()
		if err != nil {
			p.running.Unlock()
		}
		return err
	}
	p.frozen, p.stopped = nil, map[int]bool{}
	passes := 0
	for deadline := time.Now().Add(freezeTimeout); ; time.Sleep(freezePoll) { //nolint:forbidigo // there is no event for a stopped process
		settled, sure, err := p.stopRunning()
		if passes++; !settled {
			passes = 0
		}
		if err == nil && settled && (sure || passes > 1) {
			return nil
		}
		if err == nil && time.Now().After(deadline) {
			err = fmt.Errorf("not every process stopped within %v", freezeTimeout)
		}
		if err != nil {
			p.release()
			return err
		}
	}
}

// stopRunning sends a stop signal to running processes and reports whether there were none. It
// sends the signal again to a process that is still running, because another process may have
// continued it. Parents are mostly stopped first and continued last: a shell that sees a stopped
// child takes it for a job that the user has stopped.
//
// A process that waits for a child that shares its memory (vfork) only stops when the child
// continues, and the child is stopped: it is enough that the process got the signal. The child of a
// process that is just about to wait may be missing in the list: then sure is false.
func (p *initProcess) stopRunning() (settled, sure bool, err error) {
	now, err := p.processes()
	if err != nil {
		return false, false, err
	}
	settled, sure = true, true
	for _, pid := range slices.Sorted(maps.Keys(now)) {
		switch {
		case now[pid] == forking && p.stopped[pid]:
			sure = false
			continue
		case now[pid] != running && now[pid] != forking:
			continue
		}
		settled = false
		if err := syscall.Kill(pid, syscall.SIGSTOP); err == nil && !p.stopped[pid] {
			p.stopped[pid] = true
			p.frozen = append(p.frozen, pid)
		}
	}
	return settled, sure, nil
}

func (p *initProcess) thaw() error {
	if p.running.TryRLock() {
		p.running.RUnlock()
		return fmt.Errorf("not frozen")
	}
	p.release()
	return nil
}

func (p *initProcess) release() {
	if p.directory != nil {
		p.directory.tracer.Thaw()
	}
	for _, pid := range slices.Backward(p.frozen) {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed meanwhile
	}
	p.frozen, p.stopped = nil, nil
	p.running.Unlock()
}

type processState int

const (
	running processState = iota
	forking              // in a system call that creates a process
	stopped
	ended
)

// processes lists all processes of the sandbox except init.
func (p *initProcess) processes() (map[int]processState, error) {
	pids, err := p.list()
	if err != nil {
		return nil, err
	}
	found := make(map[int]processState, len(pids))
	for _, pid := range pids {
		found[pid] = stateOf(p.proc, pid)
	}
	return found, nil
}

func (p *initProcess) list() ([]int, error) {
	if p.family {
		return descendants(p.proc)
	}
	all, err := numbers(p.proc, ".") // /proc shows our PID namespace
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	return slices.DeleteFunc(all, func(pid int) bool { return pid == os.Getpid() }), nil
}

// numbers returns the numeric names in a directory of /proc.
func numbers(proc *os.Root, dir string) ([]int, error) {
	d, err := proc.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return nil, err
	}
	var found []int
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			found = append(found, n)
		}
	}
	return found, nil
}

// stateOf returns the state of the process's most active thread. A missing process has ended.
func stateOf(proc *os.Root, pid int) processState {
	threads, err := numbers(proc, fmt.Sprintf("%d/task", pid))
	if err != nil || len(threads) == 0 {
		return ended
	}
	state := ended
	for _, thread := range threads {
		b, err := proc.ReadFile(fmt.Sprintf("%d/task/%d/stat", pid, thread))
		if err != nil {
			continue
		}
		// The name in parentheses may itself contain parentheses and spaces.
		_, rest, ok := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
		switch {
		case !ok || rest == "":
			return running
		case rest[0] == 'D' && inFork(proc, pid, thread):
			state = forking
		case rest[0] == 'T' || rest[0] == 't':
			if state == ended {
				state = stopped
			}
		case rest[0] != 'Z' && rest[0] != 'X':
			return running
		}
	}
	return state
}

// inFork reports whether a thread is in one of forkCalls, the system calls that create processes.
func inFork(proc *os.Root, pid, thread int) bool {
	b, err := proc.ReadFile(fmt.Sprintf("%d/task/%d/syscall", pid, thread))
	if err != nil {
		return false
	}
	text, _, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	number, err := strconv.Atoi(text)
	return err == nil && slices.Contains(forkCalls, number)
}
