package boxinit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// spawn describes a process to start inside the inner namespaces. Only a process with a single
// thread can enter a user namespace, and Go programs have several threads. So a custom fork creates
// a child that enters the namespaces and then executes the program.
type spawn struct {
	inner     *innerNamespaces
	programs  []*byte // tried in this order, like execvp
	file      uintptr // a descriptor, executed instead unless it is noFile
	empty     *byte   // the empty name for that call
	args      []*byte // ends with nil
	env       []*byte // ends with nil
	dir       *byte
	streams   [3]uintptr
	openFiles unix.Rlimit
	filter    *unix.SockFprog // system call filter; nil for none
	terminal  bool            // the streams are a terminal, which becomes the controlling terminal
}

// stage is the progress of a child.
type stage uintptr

const (
	stageEnter stage = iota + 1
	stageDirectory
	stageStreams
	stageExecute
)

func (s stage) String() string {
	switch s {
	case stageEnter:
		return "enter namespaces"
	case stageDirectory:
		return "working directory"
	case stageStreams:
		return "set up streams"
	default:
		return "exec"
	}
}

// spawnError is the failure of a child.
type spawnError struct {
	stage stage
	errno syscall.Errno
}

func (e *spawnError) Error() string { return fmt.Sprintf("%s: %v", e.stage, e.errno) }
func (e *spawnError) Unwrap() error { return e.errno }

const (
	// reportSize is the size of a failed child's report: a stage and an error.
	reportSize = 16
	// noFile means that the program is found by its name.
	noFile = ^uintptr(0)
	// startTimeout bounds the time from a fork to the execution of the program. Any process of the
	// sandbox may stop the child meanwhile.
	startTimeout = 10 * time.Second
	// openFiles is the limit on open files of a process, if the user's hard limit allows it.
	openFiles = 65536
)

//go:linkname runtimeBeforeFork syscall.runtime_BeforeFork
func runtimeBeforeFork()

//go:linkname runtimeAfterFork syscall.runtime_AfterFork
func runtimeAfterFork()

//go:linkname runtimeAfterForkInChild syscall.runtime_AfterForkInChild
func runtimeAfterForkInChild()

// start forks and returns when the child has executed its program, or has failed.
func (s *spawn) start() (pid int, err error) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return 0, fmt.Errorf("make pipe: %w", err)
	}
	syscall.ForkLock.Lock()
	pid, errno := s.fork(uintptr(pipe[1]))
	syscall.ForkLock.Unlock()
	_ = unix.Close(pipe[1])
	defer unix.Close(pipe[0])
	if errno != 0 {
		return 0, fmt.Errorf("fork: %w", errno)
	}
	var report [reportSize]byte
	n, err := 0, awaitReadable(pipe[0], startTimeout)
	if err == nil {
		n, err = readAll(pipe[0], report[:])
	} else {
		_ = syscall.Kill(pid, syscall.SIGKILL) // the child has not been waited for, so the PID is still valid
	}
	if err == nil && n == 0 {
		return pid, nil
	}
	// The child ends by itself. Another wait in this process may have reaped it.
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil || n != reportSize {
		return 0, fmt.Errorf("start process: %w", errors.Join(err, errors.New("the child ended before it executed its program")))
	}
	return 0, &spawnError{
		stage: stage(binary.NativeEndian.Uint64(report[:8])), errno: syscall.Errno(binary.NativeEndian.Uint64(report[8:])),
	}
}

// awaitReadable returns when data or the end of file can be read.
func awaitReadable(fd int, timeout time.Duration) error {
	for deadline := time.Now().Add(timeout); ; {
		left := time.Until(deadline)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			return nil
		}
	}
}

func readAll(fd int, p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m, err := unix.Read(fd, p[n:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || m == 0 {
			return n, err
		}
		n += m
	}
	return n, nil
}

// fork must not be preempted, grow its stack or allocate between the fork and the
// end of the child: package syscall does the same in forkAndExecInChild.
//
//go:noinline
//go:norace
//go:nocheckptr
func (s *spawn) fork(report uintptr) (int, syscall.Errno) {
	// The child reads these after the fork, where no code may run that could fail.
	var (
		inner     = s.inner
		programs  = s.programs
		filter    = s.filter
		args, env = unsafe.Pointer(&s.args[0]), unsafe.Pointer(&s.env[0])
		message   [2]uint64
		failed    stage
		errno     syscall.Errno
	)
	runtimeBeforeFork()
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		runtimeAfterFork()
		return int(pid), errno
	}
	runtimeAfterForkInChild()

	failed = stageEnter
	if inner != nil {
		if errno = inner.enter(filter); errno != 0 {
			goto fail
		}
	}
	// The child must not inherit the keyring of the user who started the server. The call fails
	// harmlessly on a kernel without keyrings.
	_, _, _ = syscall.RawSyscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	failed = stageDirectory
	if _, _, errno = syscall.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(s.dir)), 0, 0); errno != 0 {
		goto fail
	}
	failed = stageStreams
	if _, _, errno = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); errno != 0 {
		goto fail
	}
	for i := 0; i < len(s.streams); i++ { // all descriptors are above 2
		if _, _, errno = syscall.RawSyscall(unix.SYS_DUP3, s.streams[i], uintptr(i), 0); errno != 0 {
			goto fail
		}
	}
	if s.terminal {
		if _, _, errno = syscall.RawSyscall(unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 1); errno != 0 {
			goto fail
		}
	}
	// Close-on-exec for all files of init, even where the flag has been forgotten. Linux before
	// 5.11 does not support this flag.
	_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE_RANGE, 3, ^uintptr(0)>>1, unix.CLOSE_RANGE_CLOEXEC)
	// The Go runtime has raised the limit of this process.
	_, _, _ = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&s.openFiles)), 0, 0, 0)
	failed = stageExecute
	if s.file != noFile {
		_, _, errno = syscall.RawSyscall6(unix.SYS_EXECVEAT, s.file, uintptr(unsafe.Pointer(s.empty)), uintptr(args), uintptr(env), unix.AT_EMPTY_PATH, 0)
		goto fail
	}
	for i := 0; i < len(programs); i++ {
		_, _, e := syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(programs[i])), uintptr(args), uintptr(env))
		if e == syscall.ENOENT || e == syscall.ENOTDIR {
			if errno == 0 {
				errno = e
			}
			continue
		}
		errno = e
		if e != syscall.EACCES {
			break
		}
	}
fail:
	message[0], message[1] = uint64(failed), uint64(errno)
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, report, uintptr(unsafe.Pointer(&message[0])), reportSize)
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT, 253, 0, 0)
	}
}

// enter moves the child of a fork into the namespaces, and restricts it there. The same
// restrictions as for fork apply.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (n *innerNamespaces) enter(filter *unix.SockFprog) syscall.Errno {
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETNS, n.user, unix.CLONE_NEWUSER, 0); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETNS, n.mount, unix.CLONE_NEWNS, 0); errno != 0 {
		return errno
	}
	for _, c := range n.drop {
		// The kernel may be older than the list.
		_, _, _ = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0, 0)
	}
	if filter == nil {
		return 0
	}
	// The capability that this requires is lost when the program is executed, at the latest.
	_, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(filter)))
	return errno
}

// filterProgram is nil if there is no filter.
var filterProgram = func() *unix.SockFprog {
	program := newFilter()
	if len(program) == 0 {
		return nil
	}
	return &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
}()

// newSpawn prepares all memory that the child needs.
func newSpawn(inner *innerNamespaces, file uintptr, programs, args []string, attr *syscall.ProcAttr) (*spawn, error) {
	s := &spawn{inner: inner, file: file, empty: new(byte), terminal: attr.Sys != nil && attr.Sys.Setctty}
	var err error
	for _, p := range programs {
		b, err := syscall.BytePtrFromString(p)
		if err != nil {
			return nil, err
		}
		s.programs = append(s.programs, b)
	}
	if s.args, err = syscall.SlicePtrFromStrings(args); err != nil {
		return nil, err
	}
	if s.env, err = syscall.SlicePtrFromStrings(attr.Env); err != nil {
		return nil, err
	}
	if s.dir, err = syscall.BytePtrFromString(attr.Dir); err != nil {
		return nil, err
	}
	if len(attr.Files) != len(s.streams) {
		return nil, fmt.Errorf("%w: %d streams", os.ErrInvalid, len(attr.Files))
	}
	copy(s.streams[:], attr.Files)
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &s.openFiles); err != nil {
		return nil, fmt.Errorf("read limit of open files: %w", err)
	}
	s.openFiles.Max = min(s.openFiles.Max, openFiles)
	s.openFiles.Cur = s.openFiles.Max
	s.filter = filterProgram
	return s, nil
}
