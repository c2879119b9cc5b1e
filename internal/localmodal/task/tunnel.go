package task

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
)

// Tunnel makes a port of the sandbox reachable from this machine.
type Tunnel struct {
	Port     uint32 // port in the sandbox
	Host     string
	HostPort uint32

	listener net.Listener
}

// Expose opens a tunnel to a port. Open connections count as use of the task.
func (t *Task) Expose(port uint32) (Tunnel, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return Tunnel{}, fmt.Errorf("open tunnel: %w", err)
	}
	tunnel := Tunnel{Port: port, Host: "127.0.0.1", HostPort: hostPort(listener), listener: listener}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return Tunnel{}, errors.Join(ErrClosed, listener.Close())
	}
	t.tunnels = append(t.tunnels, tunnel)
	t.group.Go(func() { t.accept(listener, port) })
	return tunnel, nil
}

func hostPort(l net.Listener) uint32 {
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		return uint32(a.Port)
	}
	return 0
}

// Tunnels lists the open tunnels in the order in which they were opened.
func (t *Task) Tunnels() []Tunnel {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Tunnel(nil), t.tunnels...)
}

func (t *Task) accept(listener net.Listener, port uint32) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed
		}
		if !t.admits(conn.RemoteAddr().String()) {
			_ = conn.Close() // no data was exchanged
			continue
		}
		t.group.Go(func() { t.forward(conn, port) })
	}
}

// admits reports whether a client with that address and port may reach the sandbox.
func (t *Task) admits(address string) bool {
	if t.inbound == nil {
		return true
	}
	from, err := netip.ParseAddrPort(address)
	ip := from.Addr().Unmap().WithZone("")
	return err == nil && slices.ContainsFunc(t.inbound, func(p netip.Prefix) bool { return p.Contains(ip) })
}

func (t *Task) forward(outside net.Conn, port uint32) {
	defer t.hold()()
	inside, err := t.dial(t.ctx, port)
	if err != nil {
		_ = outside.Close() // the client sees a closed port
		return
	}
	both := func() {
		_ = outside.Close()
		_ = inside.Close()
	}
	defer both()
	defer context.AfterFunc(t.ctx, both)()
	back := make(chan struct{})
	go func() {
		defer close(back)
		copyHalf(inside, outside)
	}()
	copyHalf(outside, inside)
	<-back
}

// copyHalf copies one direction and forwards its end of file.
func copyHalf(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		_ = to.Close() // a failure closes both directions
		_ = from.Close()
		return
	}
	if tcp, ok := to.(*net.TCPConn); ok {
		_ = tcp.CloseWrite() // fails if the other direction has closed the connection
	}
}

func (t *Task) dial(ctx context.Context, port uint32) (net.Conn, error) {
	return t.Box.Dial(ctx, net.JoinHostPort("127.0.0.1", strconv.FormatUint(uint64(port), 10)))
}

func (t *Task) closeListeners() error {
	t.mu.Lock()
	tunnels, connect := t.tunnels, t.connect
	t.tunnels, t.connect = nil, nil
	t.mu.Unlock()
	var err error
	for _, tunnel := range tunnels {
		err = errors.Join(err, tunnel.listener.Close())
	}
	if connect != nil {
		err = errors.Join(err, connect.close())
	}
	return err
}

// Reachable reports whether a process in the sandbox listens on port.
func (t *Task) Reachable(ctx context.Context, port uint32) bool {
	conn, err := t.dial(ctx, port)
	if err != nil {
		return false
	}
	_ = conn.Close() // the connect was the test
	return true
}
