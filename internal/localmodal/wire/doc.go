// Package wire has the messages between a sandbox's host side and its init: one message per packet
// on a SOCK_SEQPACKET socket pair, JSON inside, file descriptors alongside.
//
// Anything that may be large (the spec of a root, the arguments and environment
// of a process) travels as a sealed-off memory file whose descriptor is passed
// along, so that no message comes near the packet limit.
package wire
