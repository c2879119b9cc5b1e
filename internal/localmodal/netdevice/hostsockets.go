package netdevice

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// MaxHostSockets bounds the ports of HostSockets.
const MaxHostSockets = 16

const (
	// hostTable is the routing table to the sockets, and the priority of its rules.
	hostTable = 100
	// hostBuffer is the size of the buffers of a connection in each direction; the kernel doubles it for its
	// own overhead.
	hostBuffer = 256 << 10
	// keepAlive is the idle time, in seconds, after which a connection is probed, and the interval
	// between probes.
	keepAlive = 15
)

// The ends of the veth pair: in the namespace of the sockets, and in the one that they serve. The indexes are far
// above those that the kernel assigns.
var (
	hostPeer      = veth{name: "sandbox0", index: 1000}
	hostInterface = veth{name: "host0", index: 1000}
)

// HostSockets serve ports of HostAddress for a network namespace with kernel sockets, which are
// faster than a user-mode stack. The sockets are in a second namespace that contains nothing else;
// a veth pair connects the two. So processes in the served namespace can use the same ports
// themselves, and can neither see nor influence the sockets. Connections to a port reach its socket
// while there is a routing rule for that port (Route); all other packets go to the Device.
//
// They may be used in a process other than the one that opened them (Files, AdoptHostSockets). They
// are safe for concurrent use.
type HostSockets struct {
	mu      sync.Mutex
	routes  *os.File // a routing socket in the served namespace
	sockets []*os.File
}

// OpenHostSockets creates sockets for the network namespace of the calling thread, which must
// already have a device. They are bound to the ports and do not listen yet. It fails if the kernel
// lacks a required feature.
func OpenHostSockets(ports []uint16) (_ *HostSockets, err error) {
	if len(ports) == 0 || len(ports) > MaxHostSockets {
		return nil, fmt.Errorf("open host sockets: %d ports; must be 1 to %d", len(ports), MaxHostSockets)
	}
	r, err := dialRoute()
	if err != nil {
		return nil, fmt.Errorf("open host sockets: %w", err)
	}
	h := &HostSockets{routes: os.NewFile(uintptr(r.fd), "routes")}
	defer func() {
		if err != nil {
			h.Close()
		}
	}()
	if err := h.open(ports); err != nil {
		return nil, fmt.Errorf("open host sockets: %w", err)
	}
	err = errors.Join(r.setLink(hostInterface.index, 0, unix.IFF_UP, nil), r.addHostRoute(hostInterface.index, hostTable, HostAddress, Address))
	// Detect a kernel without rules now rather than with the first connection.
	for _, port := range ports[:1] {
		err = errors.Join(err, h.Route(port, true), h.Route(port, false))
	}
	if err != nil {
		return nil, fmt.Errorf("open host sockets: %w", err)
	}
	return h, nil
}

// open creates the namespace of the sockets, connects it to that of the calling thread and opens them. The thread is
// in its own namespace again when open returns.
func (h *HostSockets) open(ports []uint16) (err error) {
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	// The interface in the served namespace has no addresses.
	const noIPv6 = "/proc/sys/net/ipv6/conf/default/disable_ipv6"
	_ = os.WriteFile(noIPv6, []byte("1"), 0) // a kernel may have no IPv6
	defer func() {
		back := unix.Setns(home, unix.CLONE_NEWNET)
		_ = unix.Close(home) // nothing was written to it
		if back != nil {
			err = errors.Join(err, fmt.Errorf("return to network namespace: %w", back))
			return // the thread ends with its goroutine
		}
		_ = os.WriteFile(noIPv6, []byte("0"), 0)
		runtime.UnlockOSThread()
	}()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make network namespace: %w", err)
	}
	// New namespaces inherit the machine's settings, but this one must never forward packets.
	for _, file := range []string{"ip_forward", "conf/all/rp_filter", "conf/default/rp_filter", "ip_unprivileged_port_start"} {
		_ = os.WriteFile("/proc/sys/net/ipv4/"+file, []byte("0"), 0) // if the file is not writable, there is no interface to forward to
	}
	_ = os.WriteFile(noIPv6, []byte("1"), 0)
	r, err := dialRoute()
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.addVethTo(hostPeer, hostInterface, home); err != nil {
		return fmt.Errorf("create interfaces: %w", err)
	}
	if err := errors.Join(r.addAddress(hostPeer.index, HostAddress), r.addHostRoute(hostPeer.index, unix.RT_TABLE_MAIN, Address, HostAddress)); err != nil {
		return err
	}
	for _, port := range ports {
		fd, err := hostSocket(port)
		if err != nil {
			return fmt.Errorf("open socket for port %d: %w", port, err)
		}
		h.sockets = append(h.sockets, os.NewFile(uintptr(fd), fmt.Sprint("port ", port)))
	}
	return nil
}

func hostSocket(port uint16) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),       // allows listening again while connections are open
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, hostBuffer), // connections inherit the following options
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, hostBuffer),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAlive),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepAlive),
		unix.Bind(fd, &unix.SockaddrInet4{Port: int(port), Addr: HostAddress.As4()}),
	)
	if err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// Files returns the files for AdoptHostSockets. They belong to h.
func (h *HostSockets) Files() []*os.File { return append([]*os.File{h.routes}, h.sockets...) }

// AdoptHostSockets creates HostSockets from the files of another process, and owns them from then
// on.
func AdoptHostSockets(files []*os.File) *HostSockets {
	return &HostSockets{routes: files[0], sockets: files[1:]}
}

// Sockets returns the sockets of the ports, in order. They belong to h.
func (h *HostSockets) Sockets() []*os.File { return h.sockets }

// Route routes connections to a port to its socket, or stops doing so. This also affects packets of
// open connections. Only the owner of the served namespace may call it: root of the user namespace
// in which it was created, or the user who created that.
func (h *HostSockets) Route(port uint16, on bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	kind, flags := uint16(unix.RTM_DELRULE), uint16(0)
	if on {
		kind, flags = unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL
	}
	r := route{fd: int(h.routes.Fd())}
	if err := r.do(kind, flags, rule(hostTable, HostAddress, port)); err != nil {
		return fmt.Errorf("set rule for port %d: %w", port, err)
	}
	return nil
}

// Close closes the sockets. The namespace disappears with the last connection, and with it the
// interface in the served namespace.
func (h *HostSockets) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.routes.Close() // nothing was written to it
	for _, s := range h.sockets {
		_ = s.Close() // likewise
	}
}
