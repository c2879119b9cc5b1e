package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// endWithParent asks the kernel for SIGTERM at the death of the parent, so that this process ends
// even if another process has inherited the parent's end of stdin. If the parent died before this
// call, only the end of stdin reveals that.
func endWithParent() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return fmt.Errorf("follow the parent process: %w", err)
	}
	return nil
}
