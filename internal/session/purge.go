package session

import "time"

// PurgeState is how far the erasure of a session's data is.
type PurgeState string

// The states of a purge.
const (
	// PurgeStopping: the session is being stopped.
	PurgeStopping PurgeState = "stopping"
	// PurgeErasing: its data is being erased.
	PurgeErasing PurgeState = "erasing"
	// PurgeChecking: the session is gone; that nothing brought its workflow back is still to be checked.
	PurgeChecking PurgeState = "checking"
	// PurgeErased: all is done. The tombstone keeps the id from being used again.
	PurgeErased PurgeState = "erased"
)

// Purge is the erasure of everything that is stored of a session.
type Purge struct {
	SessionID   string
	State       PurgeState
	RequestedAt time.Time
}
