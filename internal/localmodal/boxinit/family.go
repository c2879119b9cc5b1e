package boxinit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Without a PID namespace, a sandbox consists of init's descendants: init is their subreaper, so
// that a process that loses its parent becomes its child.

// adoptOrphans makes this process the subreaper of its descendants.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	return nil
}

// descendants lists the living processes below this one.
func descendants(proc *os.Root) ([]int, error) {
	pids, err := numbers(proc, ".")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children := map[int][]int{}
	dead := map[int]bool{}
	for _, pid := range pids {
		data, err := proc.ReadFile(strconv.Itoa(pid) + "/stat")
		if err != nil {
			continue // the process has ended meanwhile
		}
		// pid (comm) state ppid …; comm may contain any character.
		fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
		if len(fields) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(string(fields[1])); err == nil {
			children[parent] = append(children[parent], pid)
			dead[pid] = fields[0][0] == 'Z' || fields[0][0] == 'X'
		}
	}
	var found []int
	for todo := []int{os.Getpid()}; len(todo) > 0; todo = todo[1:] {
		for _, pid := range children[todo[0]] {
			todo = append(todo, pid)
			if !dead[pid] {
				found = append(found, pid)
			}
		}
	}
	return found, nil
}

// endTimeout bounds the wait for killed processes.
const endTimeout = 4 * time.Second

// endFamily kills every descendant. It stops each process before it kills any, so that none can
// fork while others die. A list of processes is outdated as soon as it has been read, so it relies
// on the kernel: a subreaper has a child, dead or alive, as long as it has any descendant. The host
// finds processes that remain after the timeout by their root.
func (p *initProcess) endFamily() {
	p.ending.Store(true) // no process is started from now on
	stopped := map[int]bool{}
	for deadline := time.Now().Add(endTimeout); time.Now().Before(deadline); {
		alive, err := descendants(p.proc)
		if err != nil || len(alive) == 0 && p.childless() {
			return
		}
		fresh := false
		for _, pid := range alive {
			if !stopped[pid] {
				stopped[pid], fresh = true, true
				_ = syscall.Kill(pid, syscall.SIGSTOP) // the process may have ended
			}
		}
		if fresh {
			continue
		}
		for _, pid := range alive {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // there is no event for the death of a process that is not our child
	}
}

func (p *initProcess) childless() bool {
	p.reap()
	return errors.Is(unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil), unix.ECHILD)
}
