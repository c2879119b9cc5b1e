// Package box runs sandboxes as local processes on copy-on-write roots, each in
// user, mount, PID, IPC and UTS namespaces of its own.
//
//	DIR/layers/base        made from this machine at every start (HostBase)
//	DIR/layers/ly-…        one snapshot's changes: files, whiteouts, opaque directories
//	DIR/boxes/ID/upper     what the sandbox ID has changed since it started
//	DIR/building/…         layers in the making
//	DIR/trash/…            trees on their way out
//
//	   upper ──copy while frozen──▶ layer ──lower of──▶ the next sandbox's overlay
//	   upper ──rename when dead───▶ layer
//
// Invariants:
//
//   - A layer is complete, synced to disk and never written again once it has its
//     final name; it appears there by one rename.
//   - A regular file may be shared between layers by hard links, never between an
//     upper directory and a layer.
//   - The overlay is mounted inside the sandbox's mount namespace alone: it goes
//     with PID 1, and nothing on the host has to be unmounted.
//   - PID 1 is killed by the kernel when this process dies (parent-death signal,
//     and the end of its control socket), and everything else with PID 1.
//
// When things fail:
//
//	this process is killed        no process is left; uppers stay and are claimed or removed at the next start
//	killed during a snapshot      an unfinished tree stays in building, deleted at the next start
//	a process will not stop       the snapshot fails after five seconds, everything runs on
//	disk full during a snapshot   the snapshot fails, everything runs on
//	PID 1 dies                    Box.Gone is closed, every Process ends with SIGKILL
//
// Only namespaces are implemented as a way of isolation; Isolation names the kind
// that a Runtime uses, and Open says what is missing where they cannot be had.
package box
