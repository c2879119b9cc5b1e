package box

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// HoldMounts keeps the file systems of the box until release is called. Otherwise the last process
// of the box frees them at its exit, and Kill waits until the kernel has dropped everything that it
// knows of their files: with 10,000 files that takes 15 ms. The release may take as long. Nothing is
// kept if the box has ended.
func (b *Box) HoldMounts() (release func()) {
	root, err := b.openRoot()
	if err != nil {
		return func() {}
	}
	return func() { _ = root.Close() } // it was not opened for writing
}

// openRoot refers to the root directory of the box's init.
func (b *Box) openRoot() (*os.File, error) {
	path := fmt.Sprintf("/proc/%d/root", b.PID())
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
