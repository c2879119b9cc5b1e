package netstack

import (
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// Redirect makes a destination of a sandbox lead to an address of this machine.
func (c Config) Redirect(from, to netip.AddrPort) Config {
	redirect := map[netip.AddrPort]netip.AddrPort{from: to}
	for k, v := range c.redirect {
		redirect[k] = v
	}
	c.redirect = redirect
	return c
}

// Public and Own are the policy's two questions.
var (
	Public = public
	Own    = own
)

// RefusalLog is what a network collects refusals in.
type RefusalLog struct{ refusals }

// NewRefusalLog returns one with a clock.
func NewRefusalLog(now func() time.Time) *RefusalLog { return &RefusalLog{refusals{now: now}} }

// Add counts a refusal.
func (r *RefusalLog) Add(ip netip.Addr, port uint16) {
	r.add(destination{ip: ip, port: port, protocol: TCP, verdict: Refused}, "")
}

// After returns what is new.
func (r *RefusalLog) After(no int64) ([]Refusal, int64) { return r.after(no) }

// The limits.
const (
	MaxConnections = maxConnections
	MaxFlows       = maxFlows
	MaxRefusals    = maxRefusals
)

// Open is how many connections there are.
func (n *Network) Open() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.connections
}

// RoomyConnections is how many connections have large buffers.
const RoomyConnections = roomyConnections

// BufferBytes is what the buffers of the open connections may hold.
func (n *Network) BufferBytes() (bytes int64) {
	for _, e := range n.stack.RegisteredEndpoints() {
		if e, ok := e.(tcpip.Endpoint); ok && tcp.EndpointState(e.State()) == tcp.StateEstablished {
			bytes += e.SocketOptions().GetReceiveBufferSize() + e.SocketOptions().GetSendBufferSize()
		}
	}
	return bytes
}

// NameOf is what DNS called an address.
func (n *Network) NameOf(ip netip.Addr) string { return n.names.of(ip) }

// AllowedAddresses are the addresses that DNS gave for allowed names.
type AllowedAddresses struct{ allowed }

// Learn remembers one.
func (a *AllowedAddresses) Learn(ip netip.Addr, now time.Time) { a.learn(ip, now) }

// Has reports whether one may be reached.
func (a *AllowedAddresses) Has(ip netip.Addr, now time.Time) bool { return a.has(ip, now) }

// MaxNames bounds them.
const MaxNames = maxNames

// Direct is how many connections a host port's socket has accepted that are open, and Stacked how many the stack has.
func (n *Network) Direct(port uint16) (direct, stacked int) {
	p := n.host.port(port)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.direct, p.stacked
}

// Routed reports whether connections to a host port reach its socket, and whether that listens.
func (n *Network) Routed(port uint16) (routed, listening bool) {
	p := n.host.port(port)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.routed, p.listening
}

// Listens reports whether something listens on a port of this machine.
func (l *HostListeners) Listens(port uint16) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listens(port)
}

// Running reports whether it looks.
func (l *HostListeners) Running() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}

// LookNow has the ports of all networks updated.
func (l *HostListeners) LookNow() { l.lookNow() }

// BreakRoutes has the kernel refuse every further rule.
func (n *Network) BreakRoutes() { _ = n.host.sockets.Files()[0].Close() }

// Relay reports how often the loop that relays connections to host ports has handled events, and how many of its sockets
// have bytes to write.
func (n *Network) Relay() (rounds, stalled int64) {
	return n.host.loop.rounds.Load(), n.host.loop.stalled.Load()
}
