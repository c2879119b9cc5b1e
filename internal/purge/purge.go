package purge

import "time"

// State is the progress of the erasure of a session's data.
type State string

// The states of a purge.
const (
	// Stopping: the session is being stopped.
	Stopping State = "stopping"
	// Erasing: its data is being erased.
	Erasing State = "erasing"
	// Checking: the session is erased; a check that its workflow was not started again is pending.
	Checking State = "checking"
	// Erased: the purge is complete. The tombstone prevents reuse of the id.
	Erased State = "erased"
)

// Purge is the erasure of all stored data of a session.
type Purge struct {
	SessionID   string
	State       State
	RequestedAt time.Time
}
