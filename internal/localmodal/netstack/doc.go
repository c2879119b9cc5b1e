// Package netstack is the network of a sandbox: a TCP/IP stack in this process that terminates
// every connection of the sandbox's network namespace and, if the policy allows its destination,
// opens another one with this machine's sockets. It needs no privileges and no cooperation of the
// sandbox: the namespace has no other connection to the outside.
//
//	sandbox: kernel TCP/IP ── device ── endpoint ── TCP/IP (gVisor) ── policy ──▶ socket ──▶ internet
//	         nameserver 192.168.127.1 ─────────────▶ DNS ──────────────────▶ this machine's resolvers
//	         host.overwinter.internal 192.168.127.254 ─▶ ports that are allowed ─▶ this machine's loopback
//
// Passing packets between the sandbox's kernel, the stack and this machine's kernel makes a
// connection slow. Therefore kernel sockets in a second namespace (netdevice.HostSockets) accept
// the connections to the first 16 listed ports of this machine (hostports.Set.First), with the same
// policy and limits. Such a socket listens only while a program listens on the port of this
// machine, which one goroutine for all sandboxes checks every 100 ms, and when a port refuses a
// connection. So a port without a listener refuses connections immediately. While a sandbox has no
// connection through the socket and none could be made, the stack serves these ports as well: a
// server that has just started is reachable immediately.
//
// A single goroutine with its own epoll instance (relayLoop) accepts these connections, connects
// them to the ports of this machine and relays their bytes, because wake-ups dominate the cost of a
// request over a new connection. It starts when the first port listens.
//
// The policy applies to the address of each connection, after name resolution, so a name that
// resolves to a private address is unreachable. The policy refuses loopback, private, link-local,
// multicast and reserved addresses, also if embedded in IPv6 addresses, and every address of this
// machine, which it queries each time. A refused TCP connection immediately gets a reset, a refused
// UDP packet an ICMP message.
//
// An Allowlist restricts a sandbox to ranges of addresses and to the addresses that DNS has
// returned for certain names; if it contains names, queries for others are refused.
//
// DNS responses are not filtered otherwise, and a query can leak data even if every connection is
// refused. Names in a Refusal come from responses to the sandbox's queries; they are not reliable.
//
// Invariants:
//
//   - No packet is read from the device before the policy is in place.
//   - A connection counts towards the limit until its last packet is acknowledged or it is aborted.
//   - Close returns when all goroutines, sockets and endpoints have ended.
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
