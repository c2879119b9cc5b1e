// Package router serves Modal's task command router: what the SDK does inside a
// running sandbox (processes and their streams, snapshots, mounts, readiness). In
// Modal's cloud that is a service on the worker; here it shares the listener of
// the control plane.
//
// The SDK repeats calls whose answer it did not get, under the ids that it made
// itself; starting a process and taking a snapshot are therefore keyed by those.
package router
