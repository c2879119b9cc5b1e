// Package netstack is the network of a sandbox: a TCP/IP stack in this process that
// ends every connection of the sandbox's network namespace and, if the policy allows
// its destination, opens another one with this machine's sockets. No privilege is
// involved, and nothing in the sandbox has to cooperate: the namespace has no other
// way out.
//
//	sandbox: kernel TCP/IP ── device ── endpoint ── TCP/IP (gVisor) ── policy ──▶ socket ──▶ internet
//	         nameserver 192.168.127.1 ─────────────▶ DNS ──────────────────▶ this machine's resolvers
//	         host.overwinter.internal 192.168.127.254 ─▶ ports that are allowed ─▶ this machine's loopback
//
// Packets between the sandbox's kernel, the stack and this machine's kernel make a connection slow. Connections to the
// first 16 listed ports of this machine (hostports.Set.First) are therefore accepted by sockets of the kernel, which a
// second namespace contains (netdevice.HostSockets); the same policy and limits apply to them. Such a socket listens only while a
// program listens on the port of this machine, which one goroutine for all sandboxes finds out every 100 ms, and when a
// port refuses a connection. So a port on which nothing listens refuses connections at once. The stack serves these
// ports as well while a sandbox has no connection through the socket and none could be made: a server that has just
// started is reached at once.
//
// A single goroutine accepts these connections, connects them to the ports of this machine and relays their bytes, with
// its own epoll instance (relayLoop): a request over a new connection is mostly wake-ups. It starts when the first port listens.
//
// The policy decides by the address of each connection, after any name has been
// resolved: a name that resolves to a private address leads nowhere. It refuses
// loopback, private, link-local, multicast and reserved addresses, these inside IPv6 as
// well, and every address of this machine, which it asks for each time. A refused TCP
// connection gets a reset, a refused UDP packet an ICMP message: both at once.
//
// An Allowlist narrows what a sandbox reaches to ranges of addresses and to the addresses that DNS gave it
// for certain names; with names on the list, queries for others are refused.
//
// The answers of DNS are not filtered otherwise, and a query can carry data out even where every
// connection is refused. Names in a Refusal come from answers that the sandbox asked
// for; they are no proof.
//
// Invariants:
//
//   - Nothing is read from the device before the policy is in place.
//   - A connection counts against its limit until its last packet is acknowledged, or
//     it is aborted.
//   - Close returns after the last goroutine, socket and endpoint has ended.
//
// Limits, each per sandbox:
//
//	TCP connections                512; more are refused, or reset where a socket has accepted them
//	host ports with sockets        16; the stack serves the others
//	connections to be accepted     128 for each socket
//	TCP buffers                    256 KiB in each direction of a connection; 32 KiB of those that begin
//	                               while the sandbox has 64 others: 75 MiB in all, with the chunks in between
//	UDP flows                      256; the one that was idle longest makes room
//	DNS queries at once            64; more are dropped, as a busy resolver does
//	DNS connections over TCP       16
//	names remembered               1024
//	allowed CIDRs, domains         256 each
//	addresses of allowed domains   1024, each for an hour after DNS gave it
//	refused destinations           1024 in a minute; more are counted as one
//
// An idle TCP connection ends after two hours, a UDP flow after a minute.
package netstack
