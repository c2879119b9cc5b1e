package rawio

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
)

// conn is a connection whose reads and writes bypass the scheduler.
type conn struct {
	net.Conn
	in  io.Reader
	out io.Writer
}

// NewConn returns a connection with raw reads and writes over c, or c itself if it is not a
// non-blocking socket. Errors are those of package net.
func NewConn(c net.Conn) net.Conn {
	f, ok := c.(File)
	if !ok {
		return c
	}
	raw := nonblocking(f)
	if raw == nil {
		return c
	}
	return &conn{Conn: c, in: reader{raw}, out: writer{raw}}
}

// SyscallConn returns the raw connection.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return c.in.(reader).conn, nil }

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	return n, c.failure("read", err)
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.out.Write(p)
	return n, c.failure("write", err)
}

// CloseWrite shuts down the writing side, as package net/http does before it closes a connection
// with a request that it has not read to its end, so that the client receives the response.
func (c *conn) CloseWrite() error {
	closer, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return closer.CloseWrite()
}

// failure names the connection in an error, as package net does.
func (c *conn) failure(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	cause := err
	if inner, ok := errors.AsType[*net.OpError](err); ok {
		cause = inner.Err // of the raw call
	}
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: cause}
}

// listener accepts connections with raw reads and writes.
type listener struct{ net.Listener }

// NewListener returns a listener whose connections are those of NewConn.
func NewListener(l net.Listener) net.Listener { return listener{l} }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return NewConn(c), nil
}

// Dial makes a function that dials return connections with raw reads and writes.
func Dial(
	dial func(ctx context.Context, network, address string) (net.Conn, error),
) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return NewConn(c), nil
	}
}
