package boxinit

import "golang.org/x/sys/unix"

var forkCalls = []int{unix.SYS_VFORK, unix.SYS_CLONE, unix.SYS_CLONE3}
