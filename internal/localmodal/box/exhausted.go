package box

import (
	"errors"
	"slices"
	"syscall"
)

// initError is an error that a sandbox's init reports.
type initError struct {
	message string
	errno   syscall.Errno // 0 if the system gave no reason
}

func (e *initError) Error() string { return e.message }

func (e *initError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}

// exhausted are errors of the system that end when other resources are released.
var exhausted = []syscall.Errno{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.ENOBUFS, syscall.ENOSPC, syscall.EDQUOT,
}

// IsExhausted reports whether err means that the machine or the sandbox has temporarily run out of
// a resource: open files, processes, memory or disk space.
func IsExhausted(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && slices.Contains(exhausted, errno)
}
