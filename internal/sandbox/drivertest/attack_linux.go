package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attackWord is the first argument of a test binary that is started as an attacker.
const attackWord = "overwinter-escape-attack"

// Exit codes of an attack.
const (
	attackHeld    = 40
	attackEscaped = 41
	attackFailed  = 42
)

// Attack runs this process as a hostile program if it was started as one in a sandbox, and then
// does not return. TestMain must call it first.
func Attack() {
	if len(os.Args) < 3 || os.Args[1] != attackWord {
		return
	}
	e, args := Escape(os.Args[2]), os.Args[3:]
	run, ok := attacks[e]
	if !ok {
		fmt.Fprintln(os.Stderr, "no such attack:", e)
		os.Exit(attackFailed)
	}
	escaped, how := run(args)
	_, _ = fmt.Fprintln(os.Stdout, how)
	if escaped {
		os.Exit(attackEscaped)
	}
	os.Exit(attackHeld)
}

var attacks = map[Escape]func(args []string) (escaped bool, how string){
	WritePrograms:     attackPrograms,
	WriteKernel:       attackKernel,
	BlindSnapshot:     attackProc,
	TraceInit:         attackInit,
	StealDescriptors:  attackDescriptors,
	ReachDevices:      attackDevices,
	ReachSockets:      attackSockets,
	ReachLoopback:     attackServers,
	ReachAddresses:    attackServers,
	ReachPrivate:      attackPrivate,
	SendRaw:           attackRaw,
	OtherFamilies:     attackFamilies,
	ReadThroughLink:   attackLinks,
	LeaveCapabilities: attackCapabilities,
	ReachKeys:         attackKeys,
	ExhaustUserQuotas: attackUser,
	SeeProcesses:      attackProcesses,
	SeeSandboxes:      attackProcesses,
	ReadSandboxes:     attackFiles,
}

// nested repeats an attack as root of new namespaces.
const nested = "nested"

// alsoNested reports whether the attack succeeds here, or in new namespaces.
func alsoNested(e Escape, args []string, here func() (bool, string)) (bool, string) {
	escaped, how := here()
	if escaped || len(args) > 0 && args[len(args)-1] == nested {
		return escaped, how
	}
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe", append(append([]string{attackWord, string(e)}, args...), nested)...)
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	groups := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, UidMappings: ids, GidMappings: groups,
	}
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case err == nil, errors.As(err, &exit):
		return cmd.ProcessState.ExitCode() == attackEscaped, how + "; nested: " + strings.TrimSpace(string(out))
	default:
		return false, how + "; nested: " + err.Error()
	}
}

// steps tries several ways and records the result of each.
type steps struct{ log []string }

func (s *steps) note(what string, err error) bool {
	s.log = append(s.log, fmt.Sprintf("%s: %v", what, err))
	return err == nil
}

func (s *steps) String() string { return strings.Join(s.log, ", ") }

func attackPrograms(args []string) (bool, string) {
	return alsoNested(WritePrograms, args, func() (bool, string) {
		var s steps
		probe := fmt.Sprintf("%s%d", writtenProgram, os.Getpid())
		write := func(path string) {
			f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if s.note("write "+path, err) {
				_ = f.Close() // not removed: the suite looks for it on the machine
			}
		}
		s.note("remount", unix.Mount("", "/usr", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
		s.note("clear read-only", unix.MountSetattr(unix.AT_FDCWD, "/usr", unix.AT_RECURSIVE, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}))
		write(probe)
		other := "/tmp/usr-of-the-machine"
		if os.MkdirAll(other, 0o755) == nil && s.note("bind", unix.Mount("/usr", other, "", unix.MS_BIND|unix.MS_REC, "")) {
			s.note("remount the other", unix.Mount("", other, "", unix.MS_REMOUNT|unix.MS_BIND, ""))
			write(filepath.Join(other, filepath.Base(probe)+"-other"))
			_ = unix.Unmount(other, unix.MNT_DETACH)
		}
		return false, s.String() // visible in the machine's /usr
	})
}

func attackKernel(args []string) (bool, string) {
	return alsoNested(WriteKernel, args, func() (bool, string) {
		var s steps
		for _, path := range []string{"/proc/sys", "/proc/sysrq-trigger"} {
			s.note("unmount "+path, unix.Unmount(path, unix.MNT_DETACH))
			s.note("remount "+path, unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND, ""))
		}
		fresh := "/tmp/proc-of-my-own"
		_ = os.MkdirAll(fresh, 0o755)
		s.note("mount proc", unix.Mount("proc", fresh, "proc", 0, ""))
		for _, root := range []string{"/proc", fresh} {
			for _, file := range []string{"sys/kernel/core_pattern", "sys/kernel/modprobe", "sysrq-trigger"} {
				f, err := os.OpenFile(filepath.Join(root, file), os.O_WRONLY, 0) // opened, never written
				if s.note("open "+filepath.Join(root, file), err) {
					_ = f.Close()
					return true, s.String()
				}
			}
		}
		return false, s.String()
	})
}

// attackProc only prepares; a snapshot shows whether it succeeded.
func attackProc([]string) (bool, string) {
	var s steps
	s.note("mount over /proc", unix.Mount("tmpfs", "/proc", "tmpfs", 0, ""))
	return false, s.String()
}

// inits returns the processes above this one.
func inits() []int {
	var found []int
	for pid := os.Getppid(); pid > 0 && len(found) < 4; {
		found = append(found, pid)
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			break
		}
		fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		if len(fields) < 2 {
			break
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			break
		}
	}
	return found
}

func attackInit([]string) (bool, string) {
	var s steps
	for _, pid := range inits()[:1] {
		// PTRACE_SEIZE does not stop the process.
		_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0)
		if errno == 0 {
			_, _, _ = unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(pid), 0, 0, 0, 0)
			return true, fmt.Sprintf("traced %d", pid)
		}
		s.note("ptrace", errno)
		for _, file := range []string{"mem", "environ", "maps"} {
			f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, file))
			if err == nil {
				_, err = io.ReadFull(f, make([]byte, 1))
				_ = f.Close()
				if file == "mem" { // opening it is sufficient
					err = nil
				}
			}
			if s.note("read "+file, err) {
				return true, s.String()
			}
		}
		if _, err := os.ReadDir(fmt.Sprintf("/proc/%d/root/", pid)); s.note("enter root", err) {
			return true, s.String()
		}
	}
	return false, s.String()
}

func attackDescriptors([]string) (bool, string) {
	var s steps
	for _, pid := range inits()[:1] {
		fd, err := unix.PidfdOpen(pid, 0)
		if !s.note("pidfd_open", err) {
			continue
		}
		for n := 3; n < 12; n++ {
			if got, err := unix.PidfdGetfd(fd, n, 0); s.note(fmt.Sprintf("pidfd_getfd %d", n), err) {
				_ = unix.Close(got)
				return true, s.String()
			}
		}
		for n := range 12 {
			if f, err := os.Open(fmt.Sprintf("/proc/%d/fd/%d", pid, n)); s.note(fmt.Sprintf("open descriptor %d", n), err) {
				_ = f.Close()
				return true, s.String()
			}
		}
	}
	return false, s.String()
}

func attackDevices(args []string) (bool, string) {
	return alsoNested(ReachDevices, args, func() (bool, string) {
		var s steps
		dev, err := strconv.Atoi(args[0])
		if err != nil {
			return false, err.Error()
		}
		for name, d := range map[string]struct {
			kind uint32
			dev  int
		}{"disk": {unix.S_IFBLK, dev}, "memory": {unix.S_IFCHR, int(unix.Mkdev(1, 1))}} {
			for _, dir := range []string{"/root", "/tmp", "/dev", "/dev/shm"} {
				path := filepath.Join(dir, fmt.Sprintf("escape-%s-%d", name, os.Getpid()))
				if !s.note("mknod "+path, unix.Mknod(path, d.kind|0o600, d.dev)) {
					continue
				}
				f, err := os.Open(path)
				_ = os.Remove(path)
				if s.note("open "+path, err) {
					_ = f.Close()
					return true, s.String()
				}
			}
		}
		return false, s.String()
	})
}

func attackSockets(args []string) (bool, string) {
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", args[0])
	if err != nil {
		return false, err.Error()
	}
	_ = conn.Close()
	return true, "connected"
}

// attackLinks never returns. It ignores signals as far as possible, and swaps files for links.
func attackLinks(args []string) (bool, string) {
	target, dir := args[0], "/root/swap"
	for i := range 50 {
		name := filepath.Join(dir, fmt.Sprintf("f%d", i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return false, err.Error()
		}
		_ = os.WriteFile(name+".file", []byte("mine"), 0o600)
		_ = os.Symlink(target, name+".link")
		_ = os.WriteFile(name, []byte("mine"), 0o600)
		_ = os.Mkdir(name+".dir", 0o755)
		_ = os.WriteFile(filepath.Join(name+".dir", filepath.Base(target)), []byte("mine"), 0o600)
		_ = os.Symlink(filepath.Dir(target), name+".dirlink")
	}
	_ = os.WriteFile("/root/swapping", nil, 0o600)
	const exchange = 2 // RENAME_EXCHANGE
	for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); {
		for i := range 50 {
			name := filepath.Join(dir, fmt.Sprintf("f%d", i))
			_ = unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, name+".link", exchange)
			_ = unix.Renameat2(unix.AT_FDCWD, name+".dir", unix.AT_FDCWD, name+".dirlink", exchange)
		}
	}
	return false, "swapped"
}

// attackCapabilities gives a file every capability.
func attackCapabilities(args []string) (bool, string) {
	value := []byte{1, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0x01, 0, 0, 0, 0, 0, 0}
	if err := unix.Setxattr(args[0], "security.capability", value, 0); err != nil {
		return false, err.Error()
	}
	return true, "set"
}

func attackKeys(args []string) (bool, string) {
	var s steps
	for name, ring := range map[string]int{
		"session": unix.KEY_SPEC_SESSION_KEYRING, "user": unix.KEY_SPEC_USER_KEYRING, "user session": unix.KEY_SPEC_USER_SESSION_KEYRING,
	} {
		if id, err := unix.KeyctlSearch(ring, "user", args[0], 0); s.note("search "+name, err) && id != 0 {
			return true, s.String()
		}
	}
	id, err := strconv.Atoi(args[1])
	if err != nil {
		return false, err.Error()
	}
	buf := make([]byte, 64)
	if _, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, buf, 0); s.note("read", err) {
		return true, s.String()
	}
	if data, err := os.ReadFile("/proc/keys"); s.note("list", err) && strings.Contains(string(data), args[0]) {
		return true, s.String()
	}
	return false, s.String()
}

// attackLimit bounds how long an attack searches for a process or server that may not have started
// yet.
const attackLimit = 3 * time.Second

// attackUser succeeds if it gets more than half of a resource of the server's user: inotify
// instances, pending signals (each timer takes one), or bytes of message queues.
func attackUser(args []string) (bool, string) {
	return alsoNested(ExhaustUserQuotas, args, func() (bool, string) {
		var limits []uint64
		for _, arg := range args[:3] {
			limit, err := strconv.ParseUint(arg, 10, 64)
			if err != nil {
				return false, err.Error()
			}
			limits = append(limits, limit)
		}
		var s steps
		escaped := false
		// All of them are released with this process.
		for i, kind := range []struct {
			name  string
			costs uint64
			take  func(n uint64) error
		}{
			{"inotify instances", 1, func(uint64) error { _, err := unix.InotifyInit1(0); return err }},
			{"timers", 1, func(uint64) error { return makeTimer() }},
			{"bytes of message queues", queueBytes, makeQueue},
		} {
			got := uint64(0)
			var err error
			for ; err == nil && got <= limits[i]/2; got += kind.costs {
				err = kind.take(got)
			}
			escaped = escaped || err == nil
			s.note(fmt.Sprintf("%d of %d %s", got, limits[i], kind.name), err)
		}
		return escaped, s.String()
	})
}

// makeTimer creates a POSIX timer that sends a signal.
func makeTimer() error {
	event := struct {
		value          uint64
		signal, notify int32
		_              [48]byte
	}{signal: int32(unix.SIGUSR1)}
	var id int32
	if _, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&id))); errno != 0 {
		return errno
	}
	return nil
}

// queueBytes is less than the size for which the smallest queue is charged.
const queueBytes = 4096

// makeQueue creates a message queue for 10 messages of 512 bytes.
func makeQueue(n uint64) error {
	name, err := unix.BytePtrFromString(fmt.Sprintf("attack-%d-%d", os.Getpid(), n))
	if err != nil {
		return err
	}
	attributes := struct{ flags, messages, size, waiting, _, _, _, _ int64 }{messages: 10, size: 512}
	_, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_CREAT|unix.O_RDWR, 0o600, uintptr(unsafe.Pointer(&attributes)), 0, 0)
	_, _, _ = unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(name)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func attackProcesses(args []string) (bool, string) {
	return lookFor(func(pid string) bool {
		line, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		return err == nil && strings.Contains(string(line), args[0])
	})
}

func attackFiles(args []string) (bool, string) {
	return lookFor(func(pid string) bool {
		data, err := os.ReadFile(filepath.Join("/proc", pid, "root", "root", args[0]))
		return err == nil && len(data) > 0
	})
}

// lookFor checks all processes except this one and its ancestors, whose arguments contain the
// searched text too.
func lookFor(found func(pid string) bool) (bool, string) {
	mine := map[string]bool{strconv.Itoa(os.Getpid()): true}
	for _, pid := range inits() {
		mine[strconv.Itoa(pid)] = true
	}
	seen := 0
	end := time.Now().Add(attackLimit)
	for looks := 0; looks < 3 || time.Now().Before(end); looks++ { // on a busy machine the time may expire without an attempt
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return false, err.Error()
		}
		for _, e := range entries {
			if _, err := strconv.Atoi(e.Name()); err != nil || mine[e.Name()] {
				continue
			}
			seen++
			if found(e.Name()) {
				return true, "found in process " + e.Name()
			}
		}
	}
	return false, fmt.Sprintf("not found, of %d processes seen", seen)
}

// attackServers looks for a server that sends a word as its greeting.
func attackServers(args []string) (bool, string) {
	word, addresses := args[0], args[1:]
	for _, address := range addresses {
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), "tcp", address)
		if err != nil {
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		got, _ := io.ReadAll(conn)
		_ = conn.Close()
		if string(got) == word {
			return true, address + " answers"
		}
	}
	return false, fmt.Sprintf("none of %d addresses answers", len(addresses))
}

// attackPrivate looks for an address that is not refused at once: a packet was sent to it, whether
// or not any host responds.
func attackPrivate([]string) (bool, string) {
	for _, host := range []string{
		"169.254.169.254", "100.100.100.200", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "fd00:ec2::254", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe",
	} {
		began := time.Now()
		conn, err := (&net.Dialer{Timeout: 30 * time.Second}).DialContext(context.Background(), "tcp", net.JoinHostPort(host, "80"))
		if err == nil {
			_ = conn.Close()
			return true, host + " answers"
		}
		refused := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EAFNOSUPPORT)
		if !refused || time.Since(began) > 15*time.Second {
			return true, fmt.Sprintf("%s is not refused: %v", host, err)
		}
	}
	return false, "all are refused at once"
}

// maxFamily exceeds the number of address families of every kernel.
const maxFamily = 64

// attackFamilies looks for a socket of a family that network namespaces do not isolate, or that is
// not needed.
func attackFamilies([]string) (bool, string) {
	needed := []int{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}
	for family := range maxFamily {
		if slices.Contains(needed, family) {
			continue
		}
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET, unix.SOCK_RAW} {
			fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				_ = unix.Close(fd)
				return true, fmt.Sprintf("a socket of family %d can be opened", family)
			}
			if !errors.Is(err, unix.EAFNOSUPPORT) {
				return true, fmt.Sprintf("the kernel looks at family %d: %v", family, err)
			}
		}
	}
	// io_uring opens sockets without the filtered system call.
	if _, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0); errno != unix.ENOSYS && errno != unix.EPERM {
		return true, fmt.Sprintf("io_uring is there: %v", errno)
	}
	return false, "no other family is there"
}

// attackRaw looks for a socket that sends raw packets.
func attackRaw(args []string) (bool, string) {
	return alsoNested(SendRaw, args, func() (bool, string) {
		for name, socket := range map[string][3]int{
			"raw": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, "raw IPv6": {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
			"packet": {unix.AF_PACKET, unix.SOCK_RAW, 0},
		} {
			fd, err := unix.Socket(socket[0], socket[1]|unix.SOCK_CLOEXEC, socket[2])
			if err == nil {
				_ = unix.Close(fd)
				return true, "a " + name + " socket can be opened"
			}
		}
		return false, "no raw socket can be opened"
	})
}
