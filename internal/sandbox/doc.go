// Package sandbox manages the machines on which agents work: sandboxes of a provider that are
// created, used, snapshotted into images and terminated.
//
//	Provider ── Create, Open, List ──▶ Sandbox ── Exec, Run, files, Snapshot, Terminate
//	    │                                 │
//	    └────────── driver.Driver ────────┘        modalsandbox, memsandbox
//
// Provider and Sandbox are concrete; the small interface of package driver covers the differences
// between providers. Images installs what every sandbox of a session needs into an image, once per
// content.
//
// # Invariants
//
//   - A sandbox is named <session>-g<generation> and carries the tags installation, session,
//     generation and image. A sandbox with any other tag value is never adopted.
//   - Every sandbox has a lifetime and every wait on a process a deadline.
//   - A sandbox is reported as Gone only after its provider confirmed the death by Poll: an
//     unreachable machine is Unavailable.
//
// # Failures
//
//	the response to Create is lost      the next Create finds the sandbox by its name and adopts it
//	the name belongs to another session ErrNameForeign: the caller increments the generation
//	the sandbox dies during a process   reads and Wait fail with Gone within a poll interval
//	the provider does not respond       Wait fails with Timeout after the process's timeout plus a grace period
//	Terminate of a sandbox that ended   success
//	the worker dies during a build      the builder, tagged role=builder, ends by itself within minutes
package sandbox
