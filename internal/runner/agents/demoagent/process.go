package demoagent

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// ownGroup starts cmd in a new process group.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killTree kills a process and all its descendants, including those in other sessions. It stops
// each before it looks for more, so that none can fork in the meantime. Processes whose parent died
// earlier are found only by their group.
func killTree(pid int) error {
	stopped := map[int]bool{}
	for {
		found := false
		for _, p := range descendants(pid) {
			if !stopped[p] {
				stopped[p], found = true, true
				_ = syscall.Kill(p, syscall.SIGSTOP) // an exited one need not be stopped
			}
		}
		if !found {
			break
		}
	}
	for p := range stopped {
		if p != pid {
			_ = syscall.Kill(p, syscall.SIGKILL)
		}
	}
	return syscall.Kill(-pid, syscall.SIGKILL)
}

// descendants lists pid and every process below it, according to /proc.
func descendants(pid int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // has exited
		}
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			continue
		}
		// pid (name) state ppid …, where name may contain any character.
		fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
		if len(fields) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(string(fields[1])); err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	tree := []int{pid}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	return tree
}
