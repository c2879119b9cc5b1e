package netstack

import (
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// Redirect redirects a destination of a sandbox to an address of this machine.
func (c Config) Redirect(from, to netip.AddrPort) Config {
	redirect := map[netip.AddrPort]netip.AddrPort{from: to}
	for k, v := range c.redirect {
		redirect[k] = v
	}
	c.redirect = redirect
	return c
}

// Public and Own are the two checks of the policy.
var (
	Public = public
	Own    = own
)

// RefusalLog collects the refusals of a network.
type RefusalLog struct{ refusals }

// NewRefusalLog returns a RefusalLog with a clock.
func NewRefusalLog(now func() time.Time) *RefusalLog { return &RefusalLog{refusals{now: now}} }

// Add counts a refusal.
func (r *RefusalLog) Add(ip netip.Addr, port uint16) {
	r.add(destination{ip: ip, port: port, protocol: TCP, verdict: Refused}, "")
}

// After returns the refusals after a number.
func (r *RefusalLog) After(no int64) ([]Refusal, int64) { return r.after(no) }

// The limits.
const (
	MaxConnections = maxConnections
	MaxFlows       = maxFlows
	MaxRefusals    = maxRefusals
)

// Open returns the number of connections.
func (n *Network) Open() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.connections
}

// RoomyConnections is the number of connections with large buffers.
const RoomyConnections = manyConnections

// BufferBytes is the capacity of the buffers of the open connections.
func (n *Network) BufferBytes() (bytes int64) {
	for _, e := range n.stack.RegisteredEndpoints() {
		if e, ok := e.(tcpip.Endpoint); ok && tcp.EndpointState(e.State()) == tcp.StateEstablished {
			bytes += e.SocketOptions().GetReceiveBufferSize() + e.SocketOptions().GetSendBufferSize()
		}
	}
	return bytes
}

// NameOf returns the name of an address according to DNS.
func (n *Network) NameOf(ip netip.Addr) string { return n.names.of(ip) }

// AllowedAddresses are the addresses that DNS returned for allowed names.
type AllowedAddresses struct{ allowed }

// Learn records an address.
func (a *AllowedAddresses) Learn(ip netip.Addr, now time.Time) { a.learn(ip, now) }

// Has reports whether an address may be reached.
func (a *AllowedAddresses) Has(ip netip.Addr, now time.Time) bool { return a.has(ip, now) }

// MaxNames bounds the names.
const MaxNames = maxNames

// Direct returns the number of open connections that a host port's socket has accepted, and the
// number that the stack has.
func (n *Network) Direct(port uint16) (direct, stacked int) {
	p := n.host.port(port)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.direct, p.stacked
}

// Routed reports whether connections to a host port reach its socket, and whether the socket
// listens.
func (n *Network) Routed(port uint16) (routed, listening bool) {
	p := n.host.port(port)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.routed, p.listening
}

// Listens reports whether a program listens on a port of this machine.
func (l *HostListeners) Listens(port uint16) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listens(port)
}

// Running reports whether it is checking ports.
func (l *HostListeners) Running() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}

// LookNow updates the ports of all networks.
func (l *HostListeners) LookNow() { l.lookNow() }

// BreakRoutes makes the kernel refuse every further rule.
func (n *Network) BreakRoutes() { _ = n.host.sockets.Files()[0].Close() }

// Relay returns how often the relay loop of the host ports has handled events, and how many of its
// sockets have pending bytes.
func (n *Network) Relay() (rounds, stalled int64) {
	return n.host.loop.rounds.Load(), n.host.loop.stalled.Load()
}
