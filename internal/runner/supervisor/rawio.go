package supervisor

import (
	"io"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The way of a line from the agent to the worker uses system calls that the Go scheduler does not know of: it announces every
// other one to its monitor thread, which then wakes up several times until the process is idle again. For a program that
// handles one short line now and then, that costs more than the line. It is right for calls that do not wait: reads and
// writes of descriptors that are non-blocking, and writes to the page cache.

// rawReader reads a pipe or socket that is non-blocking.
type rawReader struct{ conn syscall.RawConn }

// newRawReader returns a reader of f, or f itself where that is not known to be non-blocking.
func newRawReader(f *os.File) io.Reader {
	if conn := nonblocking(f); conn != nil {
		return rawReader{conn}
	}
	return f
}

func (r rawReader) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	var errno unix.Errno
	if err := r.conn.Read(func(fd uintptr) bool {
		n, errno = rawCall(unix.SYS_READ, fd, p, 0)
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

// pollable is a pipe or a socket.
type pollable interface {
	syscall.Conn
	SetWriteDeadline(t time.Time) error
}

// rawWriter writes to a pipe or socket that is non-blocking.
type rawWriter struct{ conn syscall.RawConn }

// newRawWriter returns a writer to f, or f itself where that is not known to be non-blocking.
func newRawWriter(f output) io.Writer {
	if conn := nonblocking(f); conn != nil {
		return rawWriter{conn}
	}
	return f
}

func (w rawWriter) Write(p []byte) (written int, err error) {
	for written < len(p) {
		var n int
		var errno unix.Errno
		if err := w.conn.Write(func(fd uintptr) bool {
			n, errno = rawCall(unix.SYS_WRITE, fd, p[written:], 0)
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

// nonblocking returns the descriptor of a file if it is a pipe or socket that does not block, else nil.
func nonblocking(f pollable) syscall.RawConn {
	if f.SetWriteDeadline(time.Time{}) != nil {
		return nil // its reads and writes are not polled
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

// rawCall makes one system call on a descriptor with a buffer that is not empty.
func rawCall(call, fd uintptr, p []byte, offset int64) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(call, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), uintptr(offset), 0, 0) //nolint:gosec // as package syscall does it
		if errno != unix.EINTR {
			if errno != 0 {
				return 0, errno
			}
			return int(n), 0
		}
	}
}
