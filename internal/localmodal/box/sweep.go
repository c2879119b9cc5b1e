package box

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// sweepTimeout bounds the wait for killed processes to end.
const sweepTimeout = 10 * time.Second

// endInside kills every process whose root directory is tree and returns when none remains. It also
// finds processes that have lost their init, in a box without a PID namespace, even after the
// server was killed. It does nothing if the tree does not exist.
func endInside(tree string) error {
	var root unix.Stat_t
	err := unix.Stat(tree, &root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "stat", Path: tree, Err: err}
	}
	for deadline := time.Now().Add(sweepTimeout); ; time.Sleep(time.Millisecond) { //nolint:forbidigo // there is no event for the death of a process that is not our child
		left, err := killRooted(inode{root.Dev, root.Ino})
		if err != nil || left == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes outlive SIGKILL", left)
		}
	}
}

// killRooted kills the living processes with that root and counts them. Dead processes have no
// root.
func killRooted(root inode) (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	found := 0
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		var st unix.Stat_t
		if unix.Stat("/proc/"+e.Name()+"/root", &st) != nil || (inode{st.Dev, st.Ino}) != root {
			continue // of another user, or ended
		}
		if unix.Kill(pid, unix.SIGKILL) == nil {
			found++
		}
	}
	return found, nil
}
