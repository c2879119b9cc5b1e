//go:build !amd64

package tracer

import (
	"errors"
	"runtime"
	"syscall"
)

// Ended is called for every ended process, with its status.
type Ended func(pid int, status syscall.WaitStatus)

// Tracer does not exist on this architecture.
type Tracer struct{}

var errArchitecture = errors.New("system calls of " + runtime.GOARCH + " are not known to the tracer")

// New fails.
func New(*View, Ended) (*Tracer, error) { return nil, errArchitecture }

// Start fails.
func (*Tracer) Start(string, []string, *syscall.ProcAttr, func(pid int)) error {
	return errArchitecture
}

// Freeze fails.
func (*Tracer) Freeze() error { return errArchitecture }

// Thaw does nothing.
func (*Tracer) Thaw() {}

// End does nothing.
func (*Tracer) End() error { return nil }
