//go:build !amd64

package boxinit

import "golang.org/x/sys/unix"

var forkCalls = []int{unix.SYS_CLONE, unix.SYS_CLONE3}
