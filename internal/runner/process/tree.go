package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// process identifies a process even if its PID is reused.
type process struct {
	pid   int
	start string // in clock ticks since boot
}

// Fields of statOf, by their index.
const (
	statState  = 0
	statParent = 1
	statFlags  = 6
	statStart  = 19
)

// statOf returns the fields of /proc/PID/stat after the process's name, which may contain any
// character; nil if the process has exited.
func statOf(pid string) [][]byte {
	data, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) <= statStart {
		return nil
	}
	return fields
}

// isExiting reports whether the kernel is ending a process.
func isExiting(pid int) bool {
	const exiting = 0x4 // PF_EXITING of include/linux/sched.h
	fields := statOf(strconv.Itoa(pid))
	if fields == nil {
		return false
	}
	flags, err := strconv.ParseUint(string(fields[statFlags]), 10, 64)
	return err == nil && flags&exiting != 0
}

// descendants lists the living processes below root. It reads only /proc, because not every sandbox
// runtime has cgroups or lists of children. The runner is the subreaper of everything that the
// agent starts, so processes that were double-forked or have their own session are found as well.
func descendants(root int) ([]process, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := proc.Readdirnames(-1)
	if err := errors.Join(err, proc.Close()); err != nil {
		return nil, err
	}
	type entry struct {
		process
		dead bool
	}
	children := map[int][]entry{}
	for _, name := range slices.Backward(names) { // youngest first, because they are likely to exit first
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		fields := statOf(name)
		if fields == nil {
			continue // it has exited meanwhile
		}
		parent, _ := strconv.Atoi(string(fields[statParent]))
		state := fields[statState][0]
		children[parent] = append(children[parent], entry{
			process: process{pid: pid, start: string(fields[statStart])},
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

// killDescendants kills everything below this process and returns when nothing is left, or fails
// after budget. It stops every process before it kills any, so that none can fork while the others
// die. A list of processes is outdated once it has been read, so only the kernel's answer counts:
// as a subreaper, the runner has a child, dead or alive, while it has any descendant.
func (r *Reaper) killDescendants(budget time.Duration) error {
	deadline := time.Now().Add(budget)
	root := os.Getpid()
	stopped := map[process]bool{}
	for {
		alive, err := descendants(root)
		if err != nil {
			return fmt.Errorf("list processes: %w", err)
		}
		if len(alive) == 0 {
			if r.reap() {
				return nil
			}
			if time.Now().After(deadline) {
				return errors.New("processes fork faster than they can be found")
			}
			continue
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
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes outlive SIGKILL", len(alive))
		}
		<-time.After(2 * time.Millisecond) // give the kernel time to terminate them
	}
}
