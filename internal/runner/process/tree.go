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

// isExiting reports whether the kernel is ending a process.
func isExiting(pid int) bool {
	const flags, exiting = 6, 0x4 // PF_EXITING of include/linux/sched.h
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:]) // state ppid pgrp session tty tpgid flags …
	if len(fields) <= flags {
		return false
	}
	n, err := strconv.ParseUint(string(fields[flags]), 10, 64)
	return err == nil && n&exiting != 0
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
		data, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has exited meanwhile
		}
		// pid (comm) state ppid … starttime; comm may contain any character.
		i := bytes.LastIndexByte(data, ')')
		if i < 0 {
			continue
		}
		fields := bytes.Fields(data[i+1:])
		if len(fields) < 20 {
			continue
		}
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
