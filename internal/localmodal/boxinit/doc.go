// Package boxinit is what runs inside a sandbox as PID 1. The hosting program is
// re-executed under the name wire.InitName in fresh namespaces; Main takes over,
// builds the root, and serves the host side over an inherited socket:
//
//	host ──request──▶ init ──fork──▶ processes
//	     ◀──answer───      ◀─SIGCHLD─┘
//
// Invariants:
//
//   - When the host side goes away, for whatever reason, init exits; the kernel
//     then kills everything in the PID namespace. Nothing outlives the server.
//   - A process's "started" is sent before its "exited": both are sent with the
//     process table locked.
//   - Between freeze and thaw nothing but init runs: every thread has been seen
//     stopped, and no process is started.
//   - Nothing of the host's environment and no descriptor of the host but the
//     three standard streams of a process reaches a process.
//
// The package imports little, because its binary starts once per sandbox and once
// per file operation.
package boxinit
