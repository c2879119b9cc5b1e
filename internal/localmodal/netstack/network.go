package netstack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netdevice"
)

// The limits of a sandbox; doc.go lists them.
const (
	maxConnections    = 512
	maxFlows          = 256
	maxQueries        = 64
	maxDNSConnections = 16
	maxNames          = 1024
	maxRefusals       = 1024

	dialTimeout = 10 * time.Second
	tcpIdle     = 2 * time.Hour
	udpIdle     = time.Minute
	// lingering bounds how long the sandbox may take to acknowledge the end of a connection.
	lingering = 10 * time.Second
	// timeWait is how long the ports of a closed connection stay reserved. It can be short because
	// packets are not delayed.
	timeWait = 200 * time.Millisecond
	// bufferSize is a multiple of the data in flight on the short path to the sandbox.
	bufferSize = 256 << 10
	// Beyond manyConnections, new connections of a sandbox have smaller buffers, to limit its
	// share of this process's memory.
	manyConnections = 64
	crowdedBuffer   = 32 << 10
	crowdedChunk    = 8 << 10
)

const nic tcpip.NICID = 1

var gateway = tcpip.AddrFrom4(netdevice.Gateway.As4())

// Config describes a network.
type Config struct {
	// HostPorts are the reachable ports of this machine's loopback interface.
	HostPorts hostports.Set
	// Allow, if not nil, restricts the destinations.
	Allow *Allowlist
	// HostSockets, if not nil, are the sockets of the first HostPorts (hostports.Set.First). The
	// network owns them. The stack serves the other HostPorts, and all of them if there is an
	// Allowlist.
	HostSockets *netdevice.HostSockets
	// Listeners is required with HostSockets.
	Listeners *HostListeners
	// Resolvers returns the addresses of DNS servers. Default: those of /etc/resolv.conf, which is
	// read each time.
	Resolvers func() []string

	redirect map[netip.AddrPort]netip.AddrPort // for tests: redirects destinations to this machine
}

// Network is the outer side of a sandbox's network. It is safe for concurrent use.
type Network struct {
	config   Config
	endpoint *endpoint
	stack    *stack.Stack
	ctx      context.Context //nolint:containedctx // done when the network closes
	cancel   context.CancelFunc
	queries  chan struct{} // a slot for each query in progress
	refused  refusals
	names    names
	allowed  allowed
	host     *hostPorts // nil without HostSockets

	closing     sync.Once
	mu          sync.Mutex // guards the following fields
	closed      bool
	connections int
	flows       map[*flow]struct{}
	tasks       sync.WaitGroup // Add only while not closed
}

// New starts serving a device, which the network owns from then on.
func New(device *netdevice.Device, config Config) (*Network, error) {
	if config.Resolvers == nil {
		config.Resolvers = machineResolvers
	}
	n := &Network{
		config: config, endpoint: newEndpoint(device), queries: make(chan struct{}, maxQueries), flows: map[*flow]struct{}{},
		refused: refusals{now: time.Now},
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	if config.HostSockets != nil {
		n.host = newHostPorts(n, config.HostSockets, config.HostPorts.First(netdevice.MaxHostSockets))
	}
	n.stack = stack.New(stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{
			tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6,
		},
	})
	err := n.configure()
	if err == nil {
		err = n.serveDNS()
	}
	if err == nil && n.host != nil {
		config.Listeners.subscribe(n.host)
	}
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("start network: %w", err)
	}
	return n, nil
}

func (n *Network) configure() error {
	var failures []error
	check := func(err tcpip.Error) {
		if err != nil {
			failures = append(failures, errors.New(err.String()))
		}
	}
	for _, option := range []tcpip.SettableTransportProtocolOption{
		new(tcpip.TCPSACKEnabled(true)), new(tcpip.TCPModerateReceiveBufferOption(true)), new(tcpip.TCPRecovery(0)),
		new(tcpip.TCPTimeWaitTimeoutOption(timeWait)),
		&tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: bufferSize, Max: bufferSize},
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: bufferSize, Max: bufferSize},
	} {
		check(n.stack.SetTransportProtocolOption(tcp.ProtocolNumber, option))
	}
	// Must precede the interface, which starts reading.
	n.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, tcp.NewForwarder(n.stack, bufferSize, maxConnections, n.forwardTCP).HandlePacket)
	n.stack.SetTransportProtocolHandler(udp.ProtocolNumber, udp.NewForwarder(n.stack, n.forwardUDP).HandlePacket)
	check(n.stack.CreateNIC(nic, n.endpoint))
	check(n.stack.AddProtocolAddress(nic, tcpip.ProtocolAddress{
		Protocol: ipv4.ProtocolNumber, AddressWithPrefix: gateway.WithPrefix(),
	}, stack.AddressProperties{}))
	check(n.stack.SetPromiscuousMode(nic, true)) // accept packets to any address
	check(n.stack.SetSpoofing(nic, true))        // and respond from that address
	n.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}, {Destination: header.IPv6EmptySubnet, NIC: nic}})
	return errors.Join(failures...)
}

// Close closes every connection, and returns when all resources of the network are released. It may
// be called more than once.
func (n *Network) Close() { n.closing.Do(n.close) }

func (n *Network) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.cancel()
	n.host.close()
	_ = n.endpoint.device.File.Close() // stops the input
	n.endpoint.Wait()
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.tasks.Wait()
	}()
	for waiting := true; waiting; {
		// A handshake may begin during this loop, and would take minutes to time out.
		for _, endpoint := range n.stack.RegisteredEndpoints() {
			endpoint.Abort()
		}
		select {
		case <-done:
			waiting = false
		case <-time.After(5 * time.Millisecond):
		}
	}
	n.stack.Destroy()
}

// begin counts a task that Close waits for, unless Close has begun.
func (n *Network) begin() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.tasks.Add(1)
	return true
}

// beginConnection is begin for a connection, subject to the limit on connections.
func (n *Network) beginConnection() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.connections >= maxConnections {
		return false
	}
	n.connections++
	n.tasks.Add(1)
	return true
}

// crowded reports whether the sandbox has so many connections that new ones get small buffers.
func (n *Network) crowded() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.connections > manyConnections
}

func (n *Network) endConnection() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.connections--
	n.tasks.Done()
}

// target returns the destination of a connection or packet of the sandbox.
func target(id stack.TransportEndpointID) netip.AddrPort {
	ip, _ := netip.AddrFromSlice(id.LocalAddress.AsSlice())
	return netip.AddrPortFrom(ip, id.LocalPort)
}
