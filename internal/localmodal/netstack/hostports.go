package netstack

import (
	"errors"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/localmodal/netdevice"
)

// backlog bounds the connections to a host port that wait to be accepted. Further ones are refused.
const backlog = 128

// hostPorts serves the ports of netdevice.HostAddress that have kernel sockets. The stack serves
// the others, and also these while no program listens on the port of this machine: it dials before
// it accepts.
//
//	            port of this machine            sandbox's connections
//	stack       nothing listens, or it has      through the stack
//	            connections through the stack
//	routed,     a program listens               accepted by the kernel, dialed by accept
//	listening
//	routed      nothing listens any more, but   refused by the kernel
//	            connections are open
//
// A rule also applies to packets of open connections, so a port only moves between the stack and
// its socket while it has no connections.
type hostPorts struct {
	network *Network
	sockets *netdevice.HostSockets
	ports   []*hostPort
	loop    *relayLoop // nil until a port listens; guarded by HostListeners
}

type hostPort struct {
	number uint16
	fd     int // the socket, which is bound to the port and belongs to HostSockets

	mu        sync.Mutex // guards the following fields
	routed    bool
	listening bool
	direct    int  // open connections that the socket has accepted
	stacked   int  // open connections through the stack
	broken    bool // a request to the kernel has failed: the stack serves the port
	closed    bool
}

func newHostPorts(n *Network, sockets *netdevice.HostSockets, numbers []uint16) *hostPorts {
	h := &hostPorts{network: n, sockets: sockets}
	for i, socket := range sockets.Sockets() {
		h.ports = append(h.ports, &hostPort{number: numbers[i], fd: int(socket.Fd())})
	}
	return h
}

// port returns nil if the port has no socket.
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

// update adapts the port to whether a program listens on the port of this machine.
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
		p.broken = !p.routed // otherwise connections are refused until the rule can be removed
		if p.listening && p.broken {
			h.unlisten(p)
		}
	}
}

// withSocket returns the port whose socket has the descriptor, or nil.
func (h *hostPorts) withSocket(fd int) *hostPort {
	for _, p := range h.ports {
		if p.fd == fd {
			return p
		}
	}
	return nil
}

// listen starts accepting connections. The caller holds p.mu.
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

// unlisten makes the kernel refuse connections, including those that wait to be accepted. The
// caller holds p.mu.
func (h *hostPorts) unlisten(p *hostPort) {
	// A socket that does not listen continuously reports errors.
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

// beginStacked counts a connection through the stack; false if the stack no longer serves the port.
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

// close stops accepting and resets connections.
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
