// Package privatedir creates directories that only their owner can enter, and tightens the
// permissions of existing ones.
package privatedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Make creates the directory if it is missing and removes permissions beyond mode if it has any. It
// fails if the directory belongs to another user, who could replace its content.
func Make(path string, mode fs.FileMode) error {
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	// One descriptor is used, so that owner and mode are those of the same directory.
	dir, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	return errors.Join(tighten(dir, mode), dir.Close())
}

func tighten(dir *os.File, mode fs.FileMode) error {
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user: give it to this one (chown %d %s) or choose another directory",
			dir.Name(), os.Geteuid(), dir.Name())
	}
	if perm := info.Mode().Perm(); perm&^mode != 0 {
		return dir.Chmod(perm & mode)
	}
	return nil
}
