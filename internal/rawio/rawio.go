// Package rawio reads and writes pipes and sockets without involving the Go scheduler.
//
// A line on its way from the agent to its readers uses system calls that are invisible to the
// scheduler. The scheduler announces every other system call to its monitor thread, which then
// wakes up several times until the process is idle again. For a program that occasionally handles
// one short line, that costs more than the line itself. This is correct only for calls that do not
// wait: reads and writes of non-blocking descriptors.
package rawio

import (
	"io"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reader reads a non-blocking pipe or socket.
type reader struct{ conn syscall.RawConn }

// NewReader returns a reader of f, or f itself if it is not known to be non-blocking.
func NewReader(f *os.File) io.Reader {
	if conn := nonblocking(f); conn != nil {
		return reader{conn}
	}
	return f
}

func (r reader) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	var errno unix.Errno
	if err := r.conn.Read(func(fd uintptr) bool {
		n, errno = rawCall(unix.SYS_READ, fd, p)
		return errno != unix.EAGAIN
	}); err != nil {
		return 0, err
	}
	switch {
	case errno != 0:
		return 0, os.NewSyscallError("read", errno)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// File is a pipe or a socket.
type File interface {
	syscall.Conn
	io.WriteCloser
	SetWriteDeadline(t time.Time) error
}

// writer writes to a non-blocking pipe or socket.
type writer struct{ conn syscall.RawConn }

// NewWriter returns a writer to f, or f itself if it is not known to be non-blocking.
func NewWriter(f File) io.Writer {
	if conn := nonblocking(f); conn != nil {
		return writer{conn}
	}
	return f
}

func (w writer) Write(p []byte) (written int, err error) {
	for written < len(p) {
		var n int
		var errno unix.Errno
		if err := w.conn.Write(func(fd uintptr) bool {
			n, errno = rawCall(unix.SYS_WRITE, fd, p[written:])
			return errno != unix.EAGAIN
		}); err != nil {
			return written, err
		}
		if errno != 0 {
			return written, os.NewSyscallError("write", errno)
		}
		written += n
	}
	return written, nil
}

// Unblock returns a non-blocking file for the pipe or socket at stdin or stdout, which can also be
// passed on; nil if stream is anything else. All later input must be read from that file, and all later
// output written to it.
func Unblock(stream any) *os.File {
	f, ok := stream.(*os.File)
	if !ok {
		return nil
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	fd := -1
	if err := conn.Control(func(of uintptr) {
		var info unix.Stat_t
		if unix.Fstat(int(of), &info) != nil || info.Mode&unix.S_IFMT != unix.S_IFIFO && info.Mode&unix.S_IFMT != unix.S_IFSOCK {
			return
		}
		if fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 3); err != nil {
			fd = -1
		}
	}); err != nil || fd < 0 {
		return nil
	}
	if unix.SetNonblock(fd, true) != nil {
		_ = unix.Close(fd)
		return nil
	}
	return os.NewFile(uintptr(fd), f.Name())
}

// Nonblocking reports whether a file is a non-blocking pipe or socket.
func Nonblocking(f File) bool { return nonblocking(f) != nil }

// nonblocking returns the descriptor of a file if it is a non-blocking pipe or socket, else nil.
func nonblocking(f File) syscall.RawConn {
	if f.SetWriteDeadline(time.Time{}) != nil {
		return nil // not polled by the runtime
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	blocks := true
	if err := conn.Control(func(fd uintptr) {
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		blocks = err != nil || flags&unix.O_NONBLOCK == 0
	}); err != nil || blocks {
		return nil
	}
	return conn
}

// rawCall makes one system call on a descriptor with a non-empty buffer.
func rawCall(call, fd uintptr, p []byte) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall(call, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p))) // like package syscall
		if errno != unix.EINTR {
			if errno != 0 {
				return 0, errno
			}
			return int(n), 0
		}
	}
}
