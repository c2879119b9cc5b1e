// Package netdevice connects a network namespace to a process outside of it: it
// creates a network interface in the current namespace and returns a descriptor that
// carries the interface's packets. Package netstack serves the other end.
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
// HostSockets add sockets of the kernel for some ports of HostAddress. They take a second network namespace, a veth
// pair and routing rules; without one of these, the device carries everything.
//
//	served namespace                               namespace of the sockets
//	rule: to HostAddress, port P ─ host0 ──veth── sandbox0 ─ socket on P ──▶ package netstack ──▶ loopback, port P
//	everything else ────────────── eth0 ──device────────────────────────────▶ package netstack
//
// Addresses are the same in every namespace: no two of them are connected.
package netdevice
