package netdevice

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// MaxHostSockets is how many ports HostSockets have at most.
const MaxHostSockets = 16

const (
	// hostTable is the routing table, and the priority of the rules, that lead to the sockets.
	hostTable = 100
	// hostBuffer is the size of the buffers of a connection in each direction; the kernel doubles it for its
	// own overhead.
	hostBuffer = 256 << 10
	// keepAlive is the time, in seconds, after which an idle connection is probed, and between probes.
	keepAlive = 15
)

// The ends of the veth pair: in the namespace of the sockets, and in the one that they serve. The indexes are far
// above those that the kernel assigns.
var (
	hostPeer      = veth{name: "sandbox0", index: 1000}
	hostInterface = veth{name: "host0", index: 1000}
)

// HostSockets serve ports of HostAddress for a network namespace with sockets of the kernel, which are faster than a
// user-mode stack. They are in a second namespace that contains nothing else; a veth pair connects the two. So
// processes in the served namespace can use the same ports themselves, and neither see the sockets nor influence them.
// Connections to a port reach its socket while a routing rule for that port leads there (Route); everything else goes
// to the Device.
//
// They may be used in another process than the one that opened them (Files, AdoptHostSockets). They are safe for
// concurrent use.
type HostSockets struct {
	mu      sync.Mutex
	routes  *os.File // a routing socket in the namespace that is served
	sockets []*os.File
}

// OpenHostSockets creates sockets for the network namespace of the calling thread, which must have a device already.
// They are bound to the ports and do not listen yet. It fails where the kernel lacks what they need.
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
	// A kernel without rules must not be found out by the first connection.
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
		_ = unix.Close(home) // nothing was written
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
	// New namespaces have the machine's settings: this one never forwards anything.
	for _, file := range []string{"ip_forward", "conf/all/rp_filter", "conf/default/rp_filter", "ip_unprivileged_port_start"} {
		_ = os.WriteFile("/proc/sys/net/ipv4/"+file, []byte("0"), 0) // where it cannot be written, there is no interface to forward to
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
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),       // to listen again while connections are open
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, hostBuffer), // connections inherit what follows
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

// Files are what AdoptHostSockets needs. They belong to h.
func (h *HostSockets) Files() []*os.File { return append([]*os.File{h.routes}, h.sockets...) }

// AdoptHostSockets makes HostSockets of the files of another process's, which it owns from then on.
func AdoptHostSockets(files []*os.File) *HostSockets {
	return &HostSockets{routes: files[0], sockets: files[1:]}
}

// Sockets are those of the ports, in their order. They belong to h.
func (h *HostSockets) Sockets() []*os.File { return h.sockets }

// Route makes connections to a port lead to its socket, or no longer. This applies to the packets of open
// connections as well. Only the owner of the served namespace may do that: root of the user namespace that it was made
// in, or the user who made that.
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

// Close closes the sockets. The namespace ends with the last connection; the interface in the served one with it.
func (h *HostSockets) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.routes.Close() // nothing was written
	for _, s := range h.sockets {
		_ = s.Close() // likewise
	}
}
