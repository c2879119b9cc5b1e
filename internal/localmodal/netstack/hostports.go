package netstack

import (
	"errors"
	"net"
	"sync"

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
	loop    *relayLoop // nil until a port listens; guarded by HostListeners
}

type hostPort struct {
	number uint16
	fd     int // of the socket, which is bound to the port and belongs to HostSockets

	mu        sync.Mutex // guards what follows
	routed    bool
	listening bool
	direct    int  // open connections that the socket has accepted
	stacked   int  // open connections through the stack
	broken    bool // the kernel did not do what was asked: the stack serves it
	closed    bool
}

func newHostPorts(n *Network, sockets *netdevice.HostSockets, numbers []uint16) *hostPorts {
	h := &hostPorts{network: n, sockets: sockets}
	for i, socket := range sockets.Sockets() {
		h.ports = append(h.ports, &hostPort{number: numbers[i], fd: int(socket.Fd())})
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
	case listens && !p.listening && (p.routed || p.stacked == 0):
		if err = h.listen(p); err == nil && !p.routed {
			err = h.sockets.Route(p.number, true)
			p.routed = err == nil
		}
	case !listens:
		if p.listening {
			h.unlisten(p)
		}
		if p.routed && p.direct == 0 {
			err = h.sockets.Route(p.number, false)
			p.routed = err != nil
		}
	}
	if err != nil {
		p.broken = !p.routed // else connections are refused until the rule can be removed
		if p.listening && p.broken {
			h.unlisten(p)
		}
	}
}

// withSocket returns the port that has a descriptor, or nil.
func (h *hostPorts) withSocket(fd int) *hostPort {
	for _, p := range h.ports {
		if p.fd == fd {
			return p
		}
	}
	return nil
}

// listen starts to accept connections. The caller holds p.mu.
func (h *hostPorts) listen(p *hostPort) error {
	if h.loop == nil {
		if err := h.startLoop(); err != nil {
			return err
		}
	}
	err := errors.Join(unix.SetNonblock(p.fd, true), unix.Listen(p.fd, backlog))
	if err == nil {
		err = h.loop.wait(unix.EPOLL_CTL_ADD, p.fd, unix.EPOLLIN)
	}
	if err != nil {
		return errors.Join(err, unix.Shutdown(p.fd, unix.SHUT_RD))
	}
	p.listening = true
	return nil
}

func (h *hostPorts) startLoop() (err error) {
	if !h.network.begin() {
		return net.ErrClosed
	}
	if h.loop, err = newRelayLoop(h); err != nil {
		h.network.tasks.Done()
		return err
	}
	go func() {
		defer h.network.tasks.Done()
		h.loop.run()
	}()
	return nil
}

// unlisten has the kernel refuse connections, those that wait to be accepted included. The caller holds p.mu.
func (h *hostPorts) unlisten(p *hostPort) {
	// A socket that does not listen reports errors all the time.
	_, _ = h.loop.wait(unix.EPOLL_CTL_DEL, p.fd, 0), unix.Shutdown(p.fd, unix.SHUT_RD) // it stays bound
	p.listening = false
}

// accept accepts a connection, which counts until release.
func (p *hostPort) accept() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.listening {
		return -1, net.ErrClosed
	}
	fd, _, err := unix.Accept4(p.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err == nil {
		p.direct++
	}
	return fd, err
}

func (p *hostPort) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.direct--
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

// close ends the accepting and resets connections.
func (h *hostPorts) close() {
	if h == nil {
		return
	}
	h.network.config.Listeners.unsubscribe(h)
	for _, p := range h.ports {
		p.mu.Lock()
		p.closed = true
		if p.listening {
			h.unlisten(p)
		}
		p.mu.Unlock()
	}
	if h.loop != nil {
		h.loop.stop()
	}
	h.sockets.Close()
}
