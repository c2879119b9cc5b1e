// Package wire defines the messages between the host and a sandbox's init: one JSON message per
// packet on a SOCK_SEQPACKET socket pair, with file descriptors attached.
//
// Data that may be large (the spec of a root, the arguments and environment of a process) is passed
// as a descriptor of a memory file, so that messages stay far below the packet limit.
package wire
