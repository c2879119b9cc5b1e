// Command bench measures a whole overwinter from outside and writes docs/benchmarks.md.
//
// It starts a system of its own (`overwinter dev` on free ports, with a temporary data
// directory), talks to it through HTTP and server-sent events, and measures beside it, on the same
// Postgres, Temporal and local Modal, the bare operations that nobody can be faster than: one
// commit, one signal, one exec, one snapshot. These floors and the figures that stand on them take
// turns within the same seconds, so a machine that is busy slows down both, and the ratio holds.
//
// All parts and this program share one machine and one clock.
package main
