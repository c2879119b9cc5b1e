package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// protectProcess prevents other processes of the same user from reading this one's memory,
// environment and open files, and prevents core dumps.
func protectProcess() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make process undumpable: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core dumps: %w", err)
	}
	return nil
}
