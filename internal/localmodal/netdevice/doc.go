// Package netdevice connects a network namespace to an outside process: it creates a network
// interface in the current namespace and returns a descriptor that transports the interface's
// packets. Package netstack serves the other end.
//
//	kind   descriptor                        what it takes
//	tun    /dev/net/tun, IP packets          read and write permission for /dev/net/tun
//	veth   packet socket, Ethernet frames    CAP_NET_RAW in the namespace
//
// Both precede each packet with a virtio header, so that segments of up to 64 KiB
// without a checksum cross in one system call. A veth pair needs no device node, which
// containers often lack and some machines reserve for root, but loses packets when the
// receive buffer of its socket is full.
//
// HostSockets add kernel sockets for some ports of HostAddress. They require a second network
// namespace, a veth pair and routing rules; without one of these, the device transports all
// packets.
//
//	served namespace                               namespace of the sockets
//	rule: to HostAddress, port P ─ host0 ──veth── sandbox0 ─ socket on P ──▶ package netstack ──▶ loopback, port P
//	everything else ────────────── eth0 ──device────────────────────────────▶ package netstack
//
// Addresses are the same in every namespace, since namespaces are not connected to each other.
package netdevice
