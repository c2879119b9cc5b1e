package server

import (
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/rawio"
)

// Attach passes its stdout to the runner, with the first bytes of its connection. The runner then
// writes the messages of the link to it directly, and attach handles only the end of the link and
// the requested diffs. Therefore a line of the agent wakes one process rather than two.

// opening is the reading end of a connection. Its first read receives the file that was sent with
// the first bytes, if any. The later ones bypass the scheduler, because a worker sends a short message
// for every few lines that it has handled.
type opening struct {
	conn *net.UnixConn
	rest io.Reader // nil before the first read
	file *os.File
}

func (o *opening) Read(p []byte) (int, error) {
	if o.rest != nil {
		return o.rest.Read(p)
	}
	o.rest = rawio.NewConn(o.conn)
	oob := make([]byte, unix.CmsgSpace(4)) // one descriptor; the kernel closes others
	n, oobn, _, _, err := o.conn.ReadMsgUnix(p, oob)
	o.file = passedFile(oob[:oobn])
	return n, err
}

// passedFile returns the file in a control message, or nil.
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

// take returns the file if it is non-blocking. The caller must close it.
func (o *opening) take() *os.File {
	f := o.file
	if f == nil || !rawio.Nonblocking(f) {
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
