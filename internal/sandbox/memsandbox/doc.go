// Package memsandbox is a provider of sandboxes in memory, for tests of what is
// built on sandboxes. It runs nothing real: processes are functions registered
// with Handle, files are a map. Everything else is meant: names are unique among
// running sandboxes, snapshots copy, lifetimes end, the dead stay dead. It passes
// the suite that the real driver passes.
//
// Faults break it on purpose: an answer lost after the deed, an error by code, a
// delay, a call that hangs until its caller gives up, and Kill for a sandbox that
// dies now.
package memsandbox
