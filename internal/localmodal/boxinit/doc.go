// Package boxinit is what runs inside a sandbox as its first process. The hosting program is
// re-executed under the name wire.InitName, in fresh namespaces as far as they are available; Main
// takes over, builds the root, and serves the host side over an inherited socket:
//
//	host ──request──▶ init ──fork──▶ processes
//	     ◀──answer───      ◀─SIGCHLD─┘
//
// Invariants:
//
//   - When the host side goes away, for whatever reason, init exits, and nothing
//     outlives the server: the kernel then kills everything in the PID namespace, or
//     everything traced; without either, init kills its descendants before it exits.
//   - A process's "started" is sent before its "exited": both are sent with the
//     process table locked.
//   - In a plain directory init itself stays outside, and resolves paths as the
//     tracer does; on all other levels the sandbox's root is its own.
//   - With namespaces, processes live in a user and a mount namespace below init's: no
//     capability of theirs counts for init, for the mounts that form the root, or for
//     what init finds in /proc.
//   - Between freeze and thaw nothing but init runs: every thread has been seen
//     stopped, and no process is started.
//   - Nothing of the host's environment and no descriptor of the host but the
//     three standard streams of a process reaches a process.
//
// The package imports little, because its binary starts once per sandbox and once
// per file operation.
package boxinit
