// Package tracer shows processes a file system that is not there: a View, made of
// a plain directory and parts of the machine. It needs no privilege, only leave to
// trace one's own children (ptrace, seccomp).
//
// PRoot works the same way, and Debian's (5.1.0) runs the agents. It is not used because its bindings cannot be read-only, so that
// root in a sandbox would write to the machine's /usr, and because processes outlive it if it is killed.
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
//   - Every process is traced from before its first instruction to its end, with all
//     its descendants, and none can leave; when the tracer dies, for whatever reason,
//     the kernel kills them all.
//   - A program finds its registers as it left them. Translated arguments are in memory that the
//     tracer has the process map, never on a stack.
//   - While frozen, no thread runs: each is seen stopped. Group stops continue as they were.
//   - What a View shows ReadOnly no path changes, not even root's.
//
// It is there for honest programs. A call's arguments can be changed after the tracer has read
// them, descriptors can be passed in, and /proc, sockets' names and error messages show what is
// outside. Set-user-id programs get no power, a traced program cannot trace, and programs of other
// instruction sets (x32, i386) and io_uring find their calls missing.
package tracer
