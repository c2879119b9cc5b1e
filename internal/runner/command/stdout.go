package command

import (
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

// shareable returns a non-blocking file for the pipe or socket at stdout, which can be passed on;
// nil if stdout is anything else. All later output must be written to that file.
func shareable(stdout io.Writer) *os.File {
	f, ok := stdout.(*os.File)
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
	return os.NewFile(uintptr(fd), "stdout")
}

// greet sends the hello, together with the file for messages to the worker; nil for none.
func greet(conn *net.UnixConn, hello *runner.Hello, stdout *os.File) error {
	var b buffer
	if err := runner.WriteMessage(&b, hello); err != nil {
		return err
	}
	sent := 0
	if stdout != nil {
		raw, err := stdout.SyscallConn()
		if err != nil {
			return err
		}
		if err := raw.Control(func(fd uintptr) {
			// If descriptors cannot be passed, nothing is sent, and the hello follows without one.
			sent, _, _ = conn.WriteMsgUnix(b, unix.UnixRights(int(fd)), nil)
		}); err != nil {
			return err
		}
	}
	if sent == len(b) {
		return nil
	}
	_, err := conn.Write(b[sent:])
	return err
}

// buffer is a message in memory.
type buffer []byte

func (b *buffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}
