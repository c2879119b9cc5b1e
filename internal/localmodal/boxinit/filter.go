package boxinit

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data; for arguments, of the lower half.
const (
	dataNumber    = 0
	dataArch      = 4
	dataArguments = 16
	argumentSize  = 8
)

// x32 marks the numbers of a second interface of x86-64, which has its own numbers for some calls.
const x32 = 0x40000000

// families are the socket families that sandboxes may use, in addition to some protocols of
// AF_NETLINK. Others reach parts of the kernel that network namespaces do not separate (for example
// vsock reaches the hypervisor's host), or that no sandbox needs.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6}

// netlinkProtocols are the protocols of AF_NETLINK that programs use: interfaces and routes,
// sockets, devices, PAM's audit. A process may have all capabilities in a network namespace that it
// has created; other protocols (netfilter, IPsec, and those of modules) would give it access to
// large parts of the kernel there.
var netlinkProtocols = []uint32{unix.NETLINK_ROUTE, unix.NETLINK_USERSOCK, unix.NETLINK_SOCK_DIAG, unix.NETLINK_AUDIT, unix.NETLINK_KOBJECT_UEVENT}

// tableOptions are the ranges of socket options, by level, of the interface that iptables used
// before netlink.
var tableOptions = map[uint32][][2]uint32{
	unix.SOL_IP:   {{64, 67}, {96, 99}, {128, 131}}, // ip_tables, arp_tables and ebtables
	unix.SOL_IPV6: {{64, 65}},                       // later numbers also have other uses
}

// abi describes an instruction set for the filter.
type abi struct{ arch, socket, socketcall, fallocate, prlimit, setsockopt, getsockopt uint32 }

// The 32-bit variant, if there is one; a filter cannot see the arguments of its socketcall.
var (
	nativeABI = map[string]abi{
		"amd64": {arch: unix.AUDIT_ARCH_X86_64, socket: unix.SYS_SOCKET, fallocate: unix.SYS_FALLOCATE, prlimit: unix.SYS_PRLIMIT64, setsockopt: unix.SYS_SETSOCKOPT, getsockopt: unix.SYS_GETSOCKOPT},
		"arm64": {arch: unix.AUDIT_ARCH_AARCH64, socket: unix.SYS_SOCKET, fallocate: unix.SYS_FALLOCATE, prlimit: unix.SYS_PRLIMIT64, setsockopt: unix.SYS_SETSOCKOPT, getsockopt: unix.SYS_GETSOCKOPT},
	}
	compatABI = map[string]abi{
		"amd64": {arch: unix.AUDIT_ARCH_I386, socket: 359, socketcall: 102, fallocate: 324, prlimit: 340, setsockopt: 366, getsockopt: 365},
		"arm64": {arch: unix.AUDIT_ARCH_ARM, socket: 281, socketcall: 102, fallocate: 352, prlimit: 369, setsockopt: 294, getsockopt: 295},
	}
)

// newFilter returns the seccomp program for every process of a sandbox; nil if the instruction set
// is not known. It only allows sockets of families, and refuses calls that would bypass it
// (io_uring) or fill the disk before the watchdog notices (fallocate, except for holes); C
// libraries then write blocks instead. A process can set only its own limits: init runs as the
// sandbox's root user, which could otherwise lower the limits of init until it has no descriptors
// left.
func newFilter() []unix.SockFilter {
	native, ok := nativeABI[runtime.GOARCH]
	if !ok {
		return nil
	}
	program := []unix.SockFilter{load(dataArch)}
	for _, a := range []abi{native, compatABI[runtime.GOARCH]} {
		calls := a.program()
		program = append(program, unless(unix.BPF_JEQ, a.arch, uint8(len(calls))))
		program = append(program, calls...)
	}
	return append(program, refuse(unix.ENOSYS)) // for any other instruction set
}

// installFilter installs the filter for the programs that this thread executes.
func installFilter() error {
	if filterProgram == nil {
		return nil
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(filterProgram))); errno != 0 {
		return fmt.Errorf("filter system calls: %w", errno)
	}
	return nil
}

// program returns the instructions for the calls of one instruction set.
func (a abi) program() []unix.SockFilter {
	protocol := []unix.SockFilter{load(dataArguments + 2*argumentSize)}
	for _, p := range netlinkProtocols {
		protocol = append(protocol, unless(unix.BPF_JEQ, p, 1), allow())
	}
	protocol = append(protocol, refuse(unix.EPROTONOSUPPORT))
	family := []unix.SockFilter{load(dataArguments)}
	for _, f := range families {
		family = append(family, unless(unix.BPF_JEQ, f, 1), allow())
	}
	family = append(family, unless(unix.BPF_JEQ, unix.AF_NETLINK, uint8(len(protocol))))
	family = append(family, protocol...)
	family = append(family, refuse(unix.EAFNOSUPPORT))
	var options []unix.SockFilter
	for _, level := range []uint32{unix.SOL_IP, unix.SOL_IPV6} {
		values := []unix.SockFilter{load(dataArguments + 2*argumentSize)}
		for _, r := range tableOptions[level] {
			values = append(values, unless(unix.BPF_JGE, r[0], 2), when(unix.BPF_JGT, r[1], 1), refuse(unix.EPERM))
		}
		values = append(values, allow())
		options = append(options, load(dataArguments+argumentSize), unless(unix.BPF_JEQ, level, uint8(len(values))))
		options = append(options, values...)
	}
	options = append(options, allow())
	allocate := []unix.SockFilter{
		load(dataArguments + argumentSize), unless(unix.BPF_JSET, unix.FALLOC_FL_PUNCH_HOLE, 1), allow(), refuse(unix.EOPNOTSUPP),
	}
	const process, limit = dataArguments, dataArguments + 2*argumentSize
	limits := []unix.SockFilter{
		load(process), unless(unix.BPF_JEQ, 0, 1), allow(), // the process itself
		load(limit), unless(unix.BPF_JEQ, 0, 3), load(limit + argumentSize/2), unless(unix.BPF_JEQ, 0, 1), allow(), // only reads the limit
		refuse(unix.EPERM),
	}
	calls := []unix.SockFilter{load(dataNumber)}
	handle := func(number uint32, then []unix.SockFilter) {
		calls = append(calls, unless(unix.BPF_JEQ, number, uint8(len(then))))
		calls = append(calls, then...)
	}
	if a.arch == unix.AUDIT_ARCH_X86_64 {
		calls = append(calls, unless(unix.BPF_JGE, x32, 1), refuse(unix.ENOSYS))
	}
	handle(unix.SYS_IO_URING_SETUP, []unix.SockFilter{refuse(unix.ENOSYS)}) // has the same number on all architectures
	if a.socketcall != 0 {
		handle(a.socketcall, []unix.SockFilter{refuse(unix.EAFNOSUPPORT)})
	}
	handle(a.socket, family)
	handle(a.fallocate, allocate)
	handle(a.prlimit, limits)
	handle(a.setsockopt, options)
	handle(a.getsockopt, options)
	return append(calls, allow())
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// unless skips instructions if the test fails.
func unless(test uint16, k uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, Jf: skip, K: k}
}

// when skips instructions if the test succeeds.
func when(test uint16, k uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, Jt: skip, K: k}
}

func allow() unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
}

func refuse(errno syscall.Errno) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}
