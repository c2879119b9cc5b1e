// Package router serves Modal's task command router: the SDK's operations inside a running sandbox
// (processes and their streams, snapshots, mounts, readiness). In Modal's cloud it is a service on
// the worker; here it shares the listener of the control plane.
//
// The SDK repeats calls whose response was lost, with ids that it generated; so starting a process
// and taking a snapshot are idempotent for these ids.
package router
