package activities

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/turn"
)

// Store is the part of Postgres that activities use. Each group of activities declares its own part
// next to its code. Every method is one transaction, is safe to call again with the same arguments,
// and returns *failure.Error for reported errors: session_not_found; illegal_state for a call that
// is fenced by a newer generation, attempt or transition; stale_workflow for a write of a workflow
// run if another run has opened the session since.
type Store interface {
	recordStore
	commandStore
	runnerStore
	sandboxStore
	transcriptStore
	bundleStore
	restoreStore
	revertStore
	reconcileStore
	turn.Store
	turnStore
}

// Changes signals changes in a session's log that turns do not make, such as a prompt or an answer.
type Changes interface {
	// Watch returns a channel that receives a value when others have added to the session's log. A change may
	// be missed.
	Watch(sessionID string) (changed <-chan struct{}, stop func())
}

// Log appends the events of runs.
type Log interface {
	// Append returns when the events are committed. eventlog.ErrFenced means that
	// a newer generation or attempt has taken over and nothing was written.
	Append(ctx context.Context, a eventlog.Append) error
	// Position is the newest seq of a session; 0 before the first event.
	Position(ctx context.Context, sessionID string) (int64, error)
}
