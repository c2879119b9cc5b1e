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

// freeze stops every process and returns once each of their threads has been
// seen stopped: SIGSTOP is only a request, and a write under way would tear a
// copy of the files. Processes that were stopped before, and that no other one continues meanwhile, stay so after thaw.
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
	for deadline := time.Now().Add(freezeTimeout); ; time.Sleep(freezePoll) { //nolint:forbidigo // no event signals that a process has stopped
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

// stopRunning sends a stop signal to what still runs and reports whether nothing did. A process that got it before gets
// it again: if it still runs, another may have continued it. Parents mostly come first, and continue last: a shell that
// sees its child stopped takes it for a job that the user has stopped.
//
// One that waits for a child which shares its memory (vfork) stops when the child continues, which
// is stopped itself: that it got the signal is enough. The child of a process that is only about to
// wait may be missing in the list: sure is false.
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
	forking              // in a system call that makes a process
	stopped
	ended
)

// processes lists everything in the sandbox but ourselves.
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
	all, err := numbers(p.proc, ".") // it shows our PID namespace
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	return slices.DeleteFunc(all, func(pid int) bool { return pid == os.Getpid() }), nil
}

// numbers are the names in a directory of /proc that are numbers.
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

// stateOf is that of the liveliest thread. What has vanished has ended.
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
		// The name in parentheses may itself hold parentheses and spaces.
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

// inFork reports whether a thread waits in one of forkCalls, the system calls that make processes.
func inFork(proc *os.Root, pid, thread int) bool {
	b, err := proc.ReadFile(fmt.Sprintf("%d/task/%d/syscall", pid, thread))
	if err != nil {
		return false
	}
	text, _, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	number, err := strconv.Atoi(text)
	return err == nil && slices.Contains(forkCalls, number)
}
