// Package sandbox is where agents work: machines of a provider that are made,
// used, frozen into images and ended.
//
//	Provider ── Create, Open, List ──▶ Sandbox ── Exec, Run, files, Snapshot, Terminate
//	    │                                 │
//	    └────────── driver.Driver ────────┘        modalsandbox, memsandbox
//
// Provider and Sandbox are concrete; the small interface of package driver covers the differences
// between providers. Images installs into an image, once per content, what every sandbox of a
// session needs.
//
// # Invariants
//
//   - A sandbox is named <session>-g<generation> and carries the tags installation, session,
//     generation and image. One whose tags are not all equal is never adopted.
//   - Every sandbox has a lifetime and every wait on a process a deadline.
//   - Gone is said of a sandbox only after its provider confirmed the death by
//     Poll: an unreachable machine is Unavailable.
//
// # What happens when things fail
//
//	the answer to Create is lost        the next Create finds the sandbox by its name and adopts it
//	the name belongs to another session ErrNameForeign: the caller raises the generation
//	the sandbox dies under a process    reads and Wait end with Gone within a poll interval
//	the provider is silent              Wait ends at the process's timeout plus a grace, with Timeout
//	Terminate of a sandbox that ended   success
//	the worker dies while it prepares   the builder, tagged role=builder, ends itself within minutes
package sandbox
