package boxinit

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data; of arguments, the lower half.
const (
	dataNumber    = 0
	dataArch      = 4
	dataArguments = 16
	argumentSize  = 8
)

// x32 marks the numbers of another interface of x86-64, which has its own numbers for some calls.
const x32 = 0x40000000

// families are the socket families that sandboxes have. Others reach parts of the kernel that no network namespace
// separates (vsock, for example, the hypervisor's host), or that no sandbox needs.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// abi is what the filter has to know of an instruction set.
type abi struct{ arch, socket, socketcall, fallocate, prlimit uint32 }

// Of the 32-bit variant, where there is one; its socketcall has arguments that a filter cannot see.
var (
	nativeABI = map[string]abi{
		"amd64": {arch: unix.AUDIT_ARCH_X86_64, socket: unix.SYS_SOCKET, fallocate: unix.SYS_FALLOCATE, prlimit: unix.SYS_PRLIMIT64},
		"arm64": {arch: unix.AUDIT_ARCH_AARCH64, socket: unix.SYS_SOCKET, fallocate: unix.SYS_FALLOCATE, prlimit: unix.SYS_PRLIMIT64},
	}
	compatABI = map[string]abi{
		"amd64": {arch: unix.AUDIT_ARCH_I386, socket: 359, socketcall: 102, fallocate: 324, prlimit: 340},
		"arm64": {arch: unix.AUDIT_ARCH_ARM, socket: 281, socketcall: 102, fallocate: 352, prlimit: 369},
	}
)

// newFilter is a program for the kernel that every process of a sandbox has. It allows sockets of families alone, and
// refuses what would get around it (io_uring) and what would take a full disk at once, before it is noticed
// (fallocate, except for holes); C libraries write blocks then. A process sets its own limits alone: init has the user of the
// sandbox's root, which could leave it without descriptors. nil where the instruction set is not known.
func newFilter() []unix.SockFilter {
	native, ok := nativeABI[runtime.GOARCH]
	if !ok {
		return nil
	}
	program := []unix.SockFilter{load(dataArch)}
	for _, a := range []abi{native, compatABI[runtime.GOARCH]} {
		calls := a.program()
		program = append(program, unless(unix.BPF_JEQ, a.arch, uint8(len(calls)))) //nolint:gosec // some 40
		program = append(program, calls...)
	}
	return append(program, refuse(unix.ENOSYS)) // of yet another instruction set
}

// installFilter does so for the programs that this thread executes.
func installFilter() error {
	if filterProgram == nil {
		return nil
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(filterProgram))); errno != 0 {
		return fmt.Errorf("filter system calls: %w", errno)
	}
	return nil
}

// program handles the calls of one instruction set.
func (a abi) program() []unix.SockFilter {
	family := []unix.SockFilter{load(dataArguments)}
	for _, f := range families {
		family = append(family, unless(unix.BPF_JEQ, f, 1), allow())
	}
	family = append(family, refuse(unix.EAFNOSUPPORT))
	allocate := []unix.SockFilter{
		load(dataArguments + argumentSize), unless(unix.BPF_JSET, unix.FALLOC_FL_PUNCH_HOLE, 1), allow(), refuse(unix.EOPNOTSUPP),
	}
	const process, limit = dataArguments, dataArguments + 2*argumentSize
	limits := []unix.SockFilter{
		load(process), unless(unix.BPF_JEQ, 0, 1), allow(), // itself
		load(limit), unless(unix.BPF_JEQ, 0, 3), load(limit + argumentSize/2), unless(unix.BPF_JEQ, 0, 1), allow(), // nothing is set
		refuse(unix.EPERM),
	}
	calls := []unix.SockFilter{load(dataNumber)}
	when := func(number uint32, then []unix.SockFilter) {
		calls = append(calls, unless(unix.BPF_JEQ, number, uint8(len(then)))) //nolint:gosec // at most ten
		calls = append(calls, then...)
	}
	if a.arch == unix.AUDIT_ARCH_X86_64 {
		calls = append(calls, unless(unix.BPF_JGE, x32, 1), refuse(unix.ENOSYS))
	}
	when(unix.SYS_IO_URING_SETUP, []unix.SockFilter{refuse(unix.ENOSYS)}) // has the same number everywhere
	if a.socketcall != 0 {
		when(a.socketcall, []unix.SockFilter{refuse(unix.EAFNOSUPPORT)})
	}
	when(a.socket, family)
	when(a.fallocate, allocate)
	when(a.prlimit, limits)
	return append(calls, allow())
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// unless skips so many instructions if the test fails.
func unless(test uint16, k uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, Jf: skip, K: k}
}

func allow() unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
}

func refuse(errno syscall.Errno) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}
