// Package tracer presents a virtual file system to processes: a View, which consists of a plain
// directory and parts of the machine. It needs no privileges, only permission to trace its own
// children (ptrace, seccomp).
//
// PRoot works the same way, and the version in Debian (5.1.0) runs the agents. It is not used
// because its bindings cannot be read-only, so that root in a sandbox could write to the machine's
// /usr, and because processes survive if it is killed.
//
//	process ──a call with a path──▶ seccomp filter ──stop──▶ tracer
//	   ▲                                                       │ reads the path, resolves it in
//	   │                                                       │ the View link by link, writes the
//	   └──the same call, with the path outside──◀──────────────┘ real path, and continues it
//
// All other calls run at full speed. A rewritten call costs two stops, some tens of
// microseconds.
//
// Invariants:
//
//   - Every process and all its descendants are traced from before the first instruction to the
//     end, and none can detach; when the tracer dies, for any reason, the kernel kills them all.
//   - A program finds its registers unchanged. Translated arguments are in memory that the tracer
//     makes the process map, never on a stack.
//   - While frozen, no thread runs: each has been observed as stopped. Group stops are preserved.
//   - Files that a View shows as ReadOnly cannot be changed through a path, not even by root.
//
// It is meant for benign programs and is not a security boundary. A program can change a call's
// arguments after the tracer has read them, descriptors can be passed in, and /proc, names of
// sockets and error messages reveal outside paths. Set-user-id programs get no privileges, a traced
// program cannot trace, and system calls of other instruction sets (x32, i386) and io_uring are
// missing.
package tracer
