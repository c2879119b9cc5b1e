package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// endWithParent asks the kernel for SIGTERM at the death of the parent, so that even a parent whose
// end of stdin was inherited by another process takes this one with it. A parent that died before
// this call is noticed by the end of stdin alone.
func endWithParent() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return fmt.Errorf("follow the parent process: %w", err)
	}
	return nil
}
