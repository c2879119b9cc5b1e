// Package boxinit is the first process inside a sandbox. The hosting program is re-executed under
// the name wire.InitName, in those new namespaces that are available. Main then builds the root and
// serves the host over an inherited socket:
//
//	host ──request──▶ init ──fork──▶ processes
//	     ◀─response──      ◀─SIGCHLD─┘
//
// Invariants:
//
//   - When the host disconnects, for any reason, init exits, and no process survives:
//     the kernel kills everything in the PID namespace, or everything traced; without
//     either, init kills its descendants before it exits.
//   - A process's "started" is sent before its "exited": both are sent with the
//     process table locked.
//   - In a plain directory init itself stays outside, and resolves paths like the
//     tracer; on all other levels its root is the sandbox's root.
//   - With namespaces, processes live in a user and a mount namespace below init's: they
//     have no capabilities over init, over the mounts that form the root, or over what
//     init finds in /proc.
//   - Between freeze and thaw only init runs: every thread has been observed as stopped,
//     and no process is started.
//   - A process gets neither the host's environment nor any descriptor of the host except
//     its three standard streams.
//
// The package imports little, because its binary starts once per sandbox and once
// per file operation.
package boxinit
