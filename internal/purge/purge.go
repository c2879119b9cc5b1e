package purge

import "time"

// State is how far the erasure of a session's data is.
type State string

// The states of a purge.
const (
	// Stopping: the session is being stopped.
	Stopping State = "stopping"
	// Erasing: its data is being erased.
	Erasing State = "erasing"
	// Checking: the session is gone; that nothing brought its workflow back is still to be checked.
	Checking State = "checking"
	// Erased: all is done. The tombstone keeps the id from being used again.
	Erased State = "erased"
)

// Purge is the erasure of everything that is stored of a session.
type Purge struct {
	SessionID   string
	State       State
	RequestedAt time.Time
}
