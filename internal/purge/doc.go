// Package purge has the states of the erasure of a session's data:
//
//	stopping ──▶ erasing ──▶ checking ──▶ erased
//
// A [Purge] is a row that outlives its session: it has all state of the erasure, and is a tombstone
// afterwards.
package purge
