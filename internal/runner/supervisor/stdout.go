package supervisor

import (
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

// Attach passes its stdout to the runner, with the first bytes of its connection. The runner then writes the messages of
// the link there itself, and attach handles only what ends the link and the diffs that it is asked for: a line of the agent
// wakes one process rather than two.

// opening is the reading end of a connection. Its first read receives the file that came with the first bytes, if any.
type opening struct {
	conn *net.UnixConn
	read bool
	file *os.File
}

func (o *opening) Read(p []byte) (int, error) {
	if o.read {
		return o.conn.Read(p)
	}
	o.read = true
	oob := make([]byte, unix.CmsgSpace(4)) // one descriptor; the kernel closes others
	n, oobn, _, _, err := o.conn.ReadMsgUnix(p, oob)
	o.file = passedFile(oob[:oobn])
	return n, err
}

// passedFile is the file of a control message, nil if there is none.
func passedFile(oob []byte) *os.File {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil
	}
	return os.NewFile(uintptr(fds[0]), "stdout of attach")
}

// take returns the file, which is the caller's to close, if it can be written to without blocking.
func (o *opening) take() *os.File {
	f := o.file
	if f == nil || nonblocking(f) == nil {
		return nil
	}
	o.file = nil
	return f
}

// close closes a file that was not taken.
func (o *opening) close() {
	if o.file != nil {
		_ = o.file.Close()
	}
}

// shareable returns a file for the pipe or socket that stdout is, which does not block and can be passed on; nil if stdout
// is anything else. Everything that is written to stdout must be written to it from then on.
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

// greet sends the hello, and with it the file that messages for the worker may be written to; nil for none.
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
			// Where descriptors cannot be passed, nothing is sent, and the hello follows without one.
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

// awaitDetached bounds how long the runner takes to detach a direct link: it completes the message under way.
const awaitDetached = partingBudget + time.Second
