package command

import (
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

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
