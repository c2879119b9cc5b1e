// Package memsandbox is a provider of sandboxes in memory, for tests of packages that use
// sandboxes. It runs no real programs: processes are functions registered with Handle, and files
// are a map. Everything else behaves like a provider: names are unique among running sandboxes,
// snapshots copy files, lifetimes end, and terminated sandboxes stay terminated. It passes the same
// suite as the real driver.
//
// Injected faults can lose the response of an executed call, return an error with a code, delay a
// call, or block it until its caller gives up. Kill makes a sandbox die immediately.
package memsandbox
