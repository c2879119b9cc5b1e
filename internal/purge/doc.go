// Package purge has the states of the erasure of a session's data:
//
//	stopping ──▶ erasing ──▶ checking ──▶ erased
//
// A [Purge] is a row that outlives its session: it is all the state that the erasure needs, and a tombstone afterwards.
package purge
