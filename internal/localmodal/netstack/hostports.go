package netstack

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/localmodal/netdevice"
)

// backlog is how many connections to a host port may wait to be accepted. More are refused.
const backlog = 128

// hostPorts serves the ports of netdevice.HostAddress that have sockets of the kernel. The stack serves the others, and
// these as well while nothing listens on the port of this machine: it dials before it answers.
//
//	            port of this machine            sandbox's connections
//	stack       nothing listens, or it has      through the stack
//	            connections through the stack
//	routed,     a program listens               accepted by the kernel, dialed by accept
//	listening
//	routed      nothing listens any more, but   refused by the kernel
//	            connections are open
//
// A rule applies to packets of open connections too, so a port changes between the stack and its socket only while it
// has none.
type hostPorts struct {
	network *Network
	sockets *netdevice.HostSockets
	ports   []*hostPort
}

type hostPort struct {
	number uint16
	socket *os.File // bound to the port

	mu       sync.Mutex // guards what follows
	routed   bool
	listener *net.TCPListener // while the socket listens
	direct   int              // open connections that it has accepted
	stacked  int              // open connections through the stack
	broken   bool             // the kernel did not do what was asked: the stack serves it
	closed   bool
}

func newHostPorts(n *Network, sockets *netdevice.HostSockets, numbers []uint16) *hostPorts {
	h := &hostPorts{network: n, sockets: sockets}
	for i, socket := range sockets.Sockets() {
		h.ports = append(h.ports, &hostPort{number: numbers[i], socket: socket})
	}
	return h
}

// port returns nil for one that has no socket.
func (h *hostPorts) port(number uint16) *hostPort {
	if h == nil {
		return nil
	}
	for _, p := range h.ports {
		if p.number == number {
			return p
		}
	}
	return nil
}

// update does what follows from whether a program listens on the port of this machine.
func (h *hostPorts) update(p *hostPort, listens bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.broken {
		return
	}
	var err error
	switch {
	case listens && p.listener == nil && (p.routed || p.stacked == 0):
		if err = h.listen(p); err == nil && !p.routed {
			err = h.sockets.Route(p.number, true)
			p.routed = err == nil
		}
	case !listens:
		if p.listener != nil {
			p.unlisten()
		}
		if p.routed && p.direct == 0 {
			err = h.sockets.Route(p.number, false)
			p.routed = err != nil
		}
	}
	if err != nil {
		p.broken = !p.routed // else connections are refused until the rule can be removed
		if p.listener != nil && p.broken {
			p.unlisten()
		}
	}
}

// listen starts to accept connections. The caller holds p.mu.
func (h *hostPorts) listen(p *hostPort) error {
	if !h.network.begin() {
		return net.ErrClosed
	}
	err := unix.Listen(int(p.socket.Fd()), backlog)
	var listener net.Listener
	if err == nil {
		listener, err = net.FileListener(p.socket)
	}
	tcp, ok := listener.(*net.TCPListener)
	if err != nil || !ok {
		h.network.tasks.Done()
		return errors.Join(err, unix.Shutdown(int(p.socket.Fd()), unix.SHUT_RD))
	}
	p.listener = tcp
	go func() {
		defer h.network.tasks.Done()
		h.accept(p, tcp)
	}()
	return nil
}

// unlisten has the kernel refuse connections, those that wait to be accepted included. The caller holds p.mu.
func (p *hostPort) unlisten() {
	_ = unix.Shutdown(int(p.socket.Fd()), unix.SHUT_RD) // the socket stays bound
	_ = p.listener.Close()
	p.listener = nil
}

// accept serves connections until the socket does not listen any more.
func (h *hostPorts) accept(p *hostPort, listener *net.TCPListener) {
	for {
		inside, err := listener.AcceptTCP()
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM) {
			select {
			case <-h.network.ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		if err != nil {
			return
		}
		if !h.network.beginConnection() {
			h.network.refuse(hostAddress(p.number), TCP, Limited)
			reset(inside)
			continue
		}
		p.mu.Lock()
		p.direct++
		p.mu.Unlock()
		go func() {
			defer h.network.endConnection()
			h.serve(p, inside)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.direct--
		}()
	}
}

// serve connects an accepted connection to the port of this machine.
func (h *hostPorts) serve(p *hostPort, inside *net.TCPConn) {
	defer inside.Close()
	n, to := h.network, hostAddress(p.number)
	addresses := n.destination(to)
	if len(addresses) == 0 {
		n.refuse(to, TCP, Refused)
		reset(inside)
		return
	}
	outside, err := dialTCP(n.ctx, addresses)
	if err != nil {
		reset(inside)
		if !errors.Is(err, context.Canceled) {
			n.config.Listeners.lookNow()
		}
		return
	}
	defer outside.Close()
	n.relay(inside, outside, func() { reset(inside) })
}

// reset closes a connection so that its other end fails.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// beginStacked counts a connection that the stack has been asked for; false if the port is not the stack's any more.
func (p *hostPort) beginStacked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.routed {
		return false
	}
	p.stacked++
	return true
}

func (p *hostPort) endStacked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stacked--
}

// close ends the accepting; connections end with the network.
func (h *hostPorts) close() {
	if h == nil {
		return
	}
	h.network.config.Listeners.unsubscribe(h)
	for _, p := range h.ports {
		p.mu.Lock()
		p.closed = true
		if p.listener != nil {
			p.unlisten()
		}
		p.mu.Unlock()
	}
	h.sockets.Close()
}
