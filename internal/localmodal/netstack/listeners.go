package netstack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// listenersInterval is the interval between checks of HostListeners. A check queries the kernel for
// each port for which a sandbox has sockets: two requests of a few microseconds.
const listenersInterval = 100 * time.Millisecond

// HostListeners tracks on which ports of this machine's loopback interface programs listen. All
// networks share one. It only checks ports while there are subscribers.
type HostListeners struct {
	mu          sync.Mutex
	fd          int // a socket for queries about sockets
	subscribers map[*hostPorts]struct{}
	running     bool
	closed      bool
	stop        chan struct{}
	done        sync.WaitGroup
	looks       int // number of checks, for tests
}

// NewHostListeners fails if the kernel does not support queries for listening sockets.
func NewHostListeners() (*HostListeners, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("open socket for questions about sockets: %w", err)
	}
	l := &HostListeners{fd: fd, subscribers: map[*hostPorts]struct{}{}, stop: make(chan struct{})}
	if _, err := l.listens(1); err != nil { // any port
		return nil, errors.Join(err, unix.Close(fd))
	}
	return l, nil
}

// Close stops the checks. The ports of subscribed networks stay unchanged.
func (l *HostListeners) Close() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	close(l.stop)
	l.mu.Unlock()
	l.done.Wait()
	_ = unix.Close(l.fd) // nothing was written
}

// subscribe updates the ports now and continuously.
func (l *HostListeners) subscribe(h *hostPorts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.subscribers[h] = struct{}{}
	l.look(map[*hostPorts]struct{}{h: {}})
	if !l.running {
		l.running = true
		l.done.Go(l.run)
	}
}

// unsubscribe returns when the ports are no longer updated.
func (l *HostListeners) unsubscribe(h *hostPorts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.subscribers, h)
}

// lookNow updates the ports, because one has just refused a connection.
func (l *HostListeners) lookNow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.look(l.subscribers)
	}
}

func (l *HostListeners) run() {
	ticker := time.NewTicker(listenersInterval)
	defer ticker.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-ticker.C:
		}
		l.mu.Lock()
		if len(l.subscribers) == 0 {
			l.running = false
			l.mu.Unlock()
			return
		}
		l.looks++
		l.look(l.subscribers)
		l.mu.Unlock()
	}
}

// look updates subscribers. The caller holds l.mu.
func (l *HostListeners) look(subscribers map[*hostPorts]struct{}) {
	found := map[uint16]bool{}
	for h := range subscribers {
		for _, p := range h.ports {
			listens, known := found[p.number]
			if !known {
				listens, _ = l.listens(p.number) // after an error the stack serves the port
				found[p.number] = listens
			}
			h.update(p, listens)
		}
	}
}

// listens reports whether a connection to the port of the loopback interface would reach a listening socket.
func (l *HostListeners) listens(port uint16) (bool, error) {
	for _, ip := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		if listens, err := l.asks(netip.AddrPortFrom(ip, port)); listens || err != nil {
			return listens, err
		}
	}
	return false, nil
}

// asks queries the kernel for the socket that a connection to an address would reach.
func (l *HostListeners) asks(to netip.AddrPort) (bool, error) {
	const (
		byFamily = 20 // SOCK_DIAG_BY_FAMILY
		listen   = 10 // TCP_LISTEN
		stateAt  = unix.SizeofNlMsghdr + 1
	)
	family := byte(unix.AF_INET)
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	// struct nlmsghdr and struct inet_diag_req_v2, whose socket is from the listener's point of view.
	request := make([]byte, unix.SizeofNlMsghdr, 72)
	request = append(request, family, unix.IPPROTO_TCP, 0, 0, 0xff, 0xff, 0xff, 0xff)
	request = binary.BigEndian.AppendUint16(request, to.Port())
	request = append(request, make([]byte, 2+16+16+4)...)
	copy(request[unix.SizeofNlMsghdr+12:], to.Addr().AsSlice())
	request = append(request, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff) // any cookie
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], byFamily)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST)
	if err := unix.Sendto(l.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false, fmt.Errorf("ask for listening socket: %w", err)
	}
	answer := make([]byte, 1024)
	for {
		n, _, err := unix.Recvfrom(l.fd, answer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("ask for listening socket: %w", err)
		}
		if n <= stateAt+4 {
			return false, errors.New("ask for listening socket: unexpected answer from the kernel")
		}
		if binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
			return answer[stateAt] == listen, nil
		}
		code := unix.Errno(-int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])))
		if code == unix.ENOENT && family == unix.AF_INET || family == unix.AF_INET6 { // IPv6 may be missing
			return false, nil
		}
		return false, fmt.Errorf("ask for listening socket: %w", code)
	}
}
