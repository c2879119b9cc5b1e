// Command bench measures a whole overwinter from outside and writes docs/benchmarks.md.
//
// It starts its own systems (`overwinter dev` on free ports, with a temporary data directory), uses
// them through HTTP and server-sent events, and measures the corresponding bare operation in the
// same run: one commit, one signal, one exec, one snapshot, the agent's own process, a loop that
// only writes server-sent events. Measurements of a figure and its floor alternate within the same
// seconds, so that a busy machine slows down both and the ratio remains meaningful.
//
// The bench consists of parts, each in a file named after its measurements:
//
//	options ──▶ parts, one after another ──▶ sections of rows ──▶ document
//
// A part fills a section with rows: a figure, its floor and its goal. The writer of the document is
// independent of the parts, and parts do not depend on Markdown. A failed part is reported with its
// reason, and the others continue with a new system.
//
// All processes of the system and this program share one machine and one clock.
package main
