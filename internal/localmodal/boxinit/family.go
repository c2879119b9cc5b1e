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

// A sandbox without a PID namespace is init's family: init is the subreaper of all that is started
// in it, so that a process that loses its parent becomes its child.

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
			continue // it has ended meanwhile
		}
		// pid (comm) state ppid …; comm may hold anything.
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

// endFamily kills every descendant. Each is stopped before any is killed, so that
// none can fork while the others die. A list of processes is out of date when it
// has been read, so it is the kernel's word that counts: a subreaper has a child,
// dead or alive, for as long as it has any descendant. What is left after the
// timeout, the host side finds by its root.
func (p *initProcess) endFamily() {
	p.ending.Store(true) // nothing is started any more
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
				_ = syscall.Kill(pid, syscall.SIGSTOP) // or it has ended
			}
		}
		if fresh {
			continue
		}
		for _, pid := range alive {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // no event signals the death of another's child
	}
}

func (p *initProcess) childless() bool {
	p.reap()
	return errors.Is(unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil), unix.ECHILD)
}
