package supervisor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// process names a process beyond the reuse of its PID.
type process struct {
	pid   int
	start string // in clock ticks since boot
}

// descendants lists the living processes below root. It reads /proc alone: not
// every sandbox runtime has cgroups or lists of children. As the runner is the
// subreaper of all that the agent starts, a process that was double-forked or
// has a session of its own is found as well.
func descendants(root int) ([]process, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	type entry struct {
		process
		dead bool
	}
	children := map[int][]entry{}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		// pid (comm) state ppid … starttime; comm may hold anything.
		i := bytes.LastIndexByte(data, ')')
		if i < 0 {
			continue
		}
		fields := bytes.Fields(data[i+1:])
		if len(fields) < 20 {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, _ := strconv.Atoi(string(fields[1]))
		state := fields[0][0]
		children[parent] = append(children[parent], entry{
			process: process{pid: pid, start: string(fields[19])},
			dead:    state == 'Z' || state == 'X',
		})
	}
	var found []process
	for todo := []int{root}; len(todo) > 0; todo = todo[1:] {
		for _, e := range children[todo[0]] {
			todo = append(todo, e.pid)
			if !e.dead {
				found = append(found, e.process)
			}
		}
	}
	return found, nil
}

// killTree kills every process below root and returns when none is left. Each is
// stopped before any is killed, so that none can fork while the others die.
func killTree(ctx context.Context, root int) error {
	stopped := map[process]bool{}
	for {
		alive, err := descendants(root)
		if err != nil {
			return fmt.Errorf("list processes: %w", err)
		}
		if len(alive) == 0 {
			return nil
		}
		fresh := false
		for _, p := range alive {
			if !stopped[p] {
				stopped[p], fresh = true, true
				_ = unix.Kill(p.pid, unix.SIGSTOP)
			}
		}
		if fresh {
			continue
		}
		for _, p := range alive {
			_ = unix.Kill(p.pid, unix.SIGKILL)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes outlive SIGKILL: %w", len(alive), context.Cause(ctx))
		case <-time.After(2 * time.Millisecond):
		}
	}
}
