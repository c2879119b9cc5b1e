package test

import "syscall"

// dieWithParent has the kernel kill a process when the thread that starts it ends.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
