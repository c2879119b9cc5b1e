package netstack

import (
	"context"
	"net"
	"net/netip"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/localmodal/netdevice"
)

// reserved are the ranges outside the internet that package netip does not know. Ranges for
// documentation and for benchmarks are not included: they are unreachable, except in a network
// whose internet proxy uses them.
var reserved = prefixes(
	"0.0.0.0/8",      // this network
	"100.64.0.0/10",  // shared by the customers of a provider; metadata of some clouds
	"192.0.0.0/24",   // protocol assignments
	"192.88.99.0/24", // relays of 6to4
	"240.0.0.0/4",    // reserved, and broadcast
	"2001::/32",      // Teredo
)

// unicast6 contains all assigned internet addresses of IPv6. Outside of it are, for example, IPv4
// addresses in other forms (::a.b.c.d, ::ffff:0:a.b.c.d, NAT64 within a network), site-local
// addresses, and segment routing.
var unicast6 = netip.MustParsePrefix("2000::/3")

// Ranges that embed an IPv4 address, to which the policy applies.
var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96")
	sixTo4 = netip.MustParsePrefix("2002::/16")
)

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// public reports whether the address belongs to the internet.
func public(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		if !unicast6.Contains(ip) && !nat64.Contains(ip) {
			return false
		}
		b := ip.As16()
		if nat64.Contains(ip) && !public(netip.AddrFrom4([4]byte(b[12:]))) || sixTo4.Contains(ip) && !public(netip.AddrFrom4([4]byte(b[2:6]))) {
			return false
		}
	}
	return ip.IsGlobalUnicast() && !ip.IsPrivate() && !slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// own reports whether the address currently belongs to this machine. The source address of packets
// to a local address is that address itself, for every kind of local address.
func own(ctx context.Context, ip netip.Addr) bool {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().Unmap() == ip.Unmap() {
			return true
		}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", netip.AddrPortFrom(ip, 9).String()) // sends nothing
	if err != nil {
		return false // there is no route
	}
	local, ok := conn.LocalAddr().(*net.UDPAddr)
	_ = conn.Close() // nothing was sent
	return !ok || local.AddrPort().Addr().Unmap() == ip.Unmap()
}

// hostAddress returns a sandbox's address for a port of this machine's loopback interface.
func hostAddress(port uint16) netip.AddrPort { return netip.AddrPortFrom(netdevice.HostAddress, port) }

// destination returns the addresses to dial for a connection to an address, none if it is refused.
// The loopback interface of this machine has two, since programs may listen on either.
func (n *Network) destination(to netip.AddrPort) []netip.AddrPort {
	if !n.allows(to.Addr()) {
		return nil
	}
	if dial := n.config.redirect[to]; dial.IsValid() {
		return []netip.AddrPort{dial}
	}
	if to.Addr() == netdevice.HostAddress {
		if !n.config.HostPorts.Contains(to.Port()) {
			return nil
		}
		return []netip.AddrPort{
			netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), to.Port()), netip.AddrPortFrom(netip.IPv6Loopback(), to.Port()),
		}
	}
	if !public(to.Addr()) || own(n.ctx, to.Addr()) {
		return nil
	}
	return []netip.AddrPort{to}
}
