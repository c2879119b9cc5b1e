//go:build !linux

package test

import "syscall"

// dieWithParent has no means here: a test that is killed leaves its processes.
func dieWithParent() *syscall.SysProcAttr { return nil }
