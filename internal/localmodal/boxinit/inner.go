package boxinit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// innerNamespaces are the namespaces of a sandbox's processes: a user and a mount namespace below
// those of init. The kernel locks init's mounts when it copies them: read-only mounts stay
// read-only, and mounts that hide files cannot be removed, regardless of a process's capabilities.
// Processes have no capabilities over init, whose namespace is the outer one.
type innerNamespaces struct {
	user, mount uintptr   // descriptors
	drop        []uintptr // capabilities that processes lose permanently
}

// dropped are capabilities that are useless in a sandbox and give access to parts of the kernel
// that no sandbox needs.
var dropped = []uintptr{
	unix.CAP_AUDIT_CONTROL, unix.CAP_AUDIT_READ, unix.CAP_BLOCK_SUSPEND, unix.CAP_BPF, unix.CAP_LINUX_IMMUTABLE, unix.CAP_MAC_ADMIN,
	unix.CAP_MAC_OVERRIDE, unix.CAP_MKNOD, unix.CAP_PERFMON, unix.CAP_SYS_BOOT, unix.CAP_SYS_MODULE, unix.CAP_SYS_PACCT,
	unix.CAP_SYS_RAWIO, unix.CAP_SYS_TIME, unix.CAP_SYSLOG, unix.CAP_WAKE_ALARM,
}

// makeInner creates the namespaces after the root is complete. ids is the number of ids in our own
// user namespace.
func makeInner(ids int) (*innerNamespaces, error) {
	// Later mounts by init, such as an image over a directory, also appear inside, but not the
	// reverse: the inner mounts are slaves.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return nil, fmt.Errorf("share mounts with the inner namespace: %w", err)
	}
	// A waiting process keeps the namespaces alive until they are open.
	var wait [2]int
	if err := unix.Pipe2(wait[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	syscall.ForkLock.Lock()
	pid, errno := forkWaiting(uintptr(wait[0]), uintptr(wait[1]))
	syscall.ForkLock.Unlock()
	_ = unix.Close(wait[0])
	if errno != 0 {
		_ = unix.Close(wait[1])
		return nil, fmt.Errorf("make inner namespaces: %w", errno)
	}
	inner, err := openInner(pid, ids)
	err = errors.Join(err, unix.Close(wait[1])) // ends the process
	for {
		var status syscall.WaitStatus
		if _, e := syscall.Wait4(pid, &status, 0, nil); !errors.Is(e, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make inner namespaces: %w", err)
	}
	return inner, nil
}

// forkWaiting forks a child in new namespaces that ends when the pipe does.
//
//go:noinline
//go:norace
//go:nocheckptr
func forkWaiting(read, write uintptr) (int, syscall.Errno) {
	var nothing byte
	runtimeBeforeFork()
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD)|unix.CLONE_NEWUSER|unix.CLONE_NEWNS, 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		runtimeAfterFork()
		return int(pid), errno
	}
	runtimeAfterForkInChild()
	_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, write, 0, 0)
	for { // reads until the other end is closed
		if _, _, e := syscall.RawSyscall(unix.SYS_READ, read, uintptr(unsafe.Pointer(&nothing)), 1); e != syscall.EINTR {
			break
		}
	}
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	}
}

// openInner maps all our ids to themselves in the child's user namespace, and opens both
// namespaces.
func openInner(pid, ids int) (*innerNamespaces, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	identity := []byte(fmt.Sprintf("0 0 %d\n", ids))
	if ids == 1 { // an ordinary user's namespace: the kernel requires this, and the outer namespace has done so already
		if err := os.WriteFile(filepath.Join(dir, "setgroups"), []byte("deny"), 0); err != nil {
			return nil, err
		}
	}
	for _, file := range []string{"uid_map", "gid_map"} {
		if err := os.WriteFile(filepath.Join(dir, file), identity, 0); err != nil {
			return nil, err
		}
	}
	user, err := unix.Open(filepath.Join(dir, "ns", "user"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	mount, err := unix.Open(filepath.Join(dir, "ns", "mnt"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(err, unix.Close(user))
	}
	return &innerNamespaces{user: uintptr(user), mount: uintptr(mount), drop: dropped}, nil
}
