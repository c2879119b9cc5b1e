//go:build !linux

package test

import "syscall"

// dieWithParent does nothing: on this system a killed test leaves its processes running.
func dieWithParent() *syscall.SysProcAttr { return nil }
