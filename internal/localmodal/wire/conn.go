package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxPacket = 64 << 10
	maxFiles  = 32
)

// Conn is one end of a control socket. Send may be called concurrently;
// Receive by one goroutine at a time.
type Conn struct {
	conn *net.UnixConn
	mu   sync.Mutex // serializes writers
}

// Pair returns a connected pair: our end, and the file that the other process inherits.
func Pair() (*Conn, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make control socket: %w", err)
	}
	remote := os.NewFile(uintptr(fds[1]), "control-remote")
	conn, err := FromFile(os.NewFile(uintptr(fds[0]), "control"))
	if err != nil {
		return nil, nil, errors.Join(err, remote.Close())
	}
	return conn, remote, nil
}

// FromFile wraps an inherited socket and closes f.
func FromFile(f *os.File) (*Conn, error) {
	c, err := net.FileConn(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("control socket is a %T", c), c.Close())
	}
	return &Conn{conn: uc}, nil
}

// Send writes one message. The caller keeps ownership of the files.
func (c *Conn) Send(message any, files ...*os.File) error {
	b, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode control message: %w", err)
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = syscall.UnixRights(fds...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, _, err := c.conn.WriteMsgUnix(b, rights, nil); err != nil {
		return fmt.Errorf("send control message: %w", err)
	}
	return nil
}

// Receive reads one message into message; the caller must close the received files. io.EOF means
// that the other side has closed the connection.
func (c *Conn) Receive(message any) ([]*os.File, error) {
	buf, oob := make([]byte, maxPacket), make([]byte, syscall.CmsgSpace(4*maxFiles))
	n, oobn, _, _, err := c.conn.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, err
	}
	files, err := parseFiles(oob[:oobn])
	if err != nil {
		return nil, err
	}
	if n == 0 {
		CloseAll(files)
		return nil, io.EOF
	}
	if err := json.Unmarshal(buf[:n], message); err != nil {
		CloseAll(files)
		return nil, fmt.Errorf("decode control message: %w", err)
	}
	return files, nil
}

func parseFiles(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("parse control message: %w", err)
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			continue // control messages without files, such as credentials
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files, nil
}

// SetReadDeadline sets the deadline of Receive; the zero time removes it.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

// Close closes our end.
func (c *Conn) Close() error { return c.conn.Close() }

// CloseAll closes files without unwritten data.
func CloseAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// MemoryFile returns an unnamed file that contains v as JSON, positioned at its start.
func MemoryFile(v any) (*os.File, error) {
	fd, err := unix.MemfdCreate("spec", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), "spec")
	err = json.NewEncoder(f).Encode(v)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fill memory file: %w", err), f.Close())
	}
	return f, nil
}
