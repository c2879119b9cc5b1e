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

// killTree kills a process with all its descendants, those in other sessions too. It stops each
// before looking for more, so that none can fork away in the meantime. Processes whose parent died
// earlier are found by their group only.
func killTree(pid int) error {
	stopped := map[int]bool{}
	for {
		found := false
		for _, p := range descendants(pid) {
			if !stopped[p] {
				stopped[p], found = true, true
				_ = syscall.Kill(p, syscall.SIGSTOP) // one that is gone needs no stopping
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

// descendants lists pid and every process below it, as /proc shows them now.
func descendants(pid int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well formed
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // gone since
		}
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			continue
		}
		// pid (name) state ppid …, where name may hold anything.
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
