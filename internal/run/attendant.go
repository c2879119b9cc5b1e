package run

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// Claim is a request for the next prompt of a session by its attendant.
type Claim struct {
	SessionID  string
	Attendant  string // the token to which the attendance was granted
	Generation int64  // generation of the attendant's sandbox
	RunID      string // proposed for a prompt without an allotted run; a repeated request claims no further prompt
	Token      string // token of the run's first attempt, which is the attendant's
	Attempt    int64  // Temporal's attempt of the attendant's activity
	// Expected is called with the start of the run before the claim is committed, while the session is
	// locked. It must not block. The claim may still fail, and Expected may be called again. Default: it
	// is not called.
	Expected func(Start)
}

// Claimed is the result of a claim of an attendant.
type Claimed struct {
	// Attended means that the attendance continues. Otherwise the workflow has ended it, or must do
	// so because other work than a prompt is pending.
	Attended bool
	// Commanded means that a command is pending, which was signalled to the workflow, and that the
	// attendance has not ended yet.
	Commanded bool
	Start     *Start // start of the claimed prompt; nil if none is queued
}

// Reclaimed is the state of a session after its workflow has ended the attendance.
type Reclaimed struct {
	session.Look
	// Run is the run in progress, until whose end the attendant keeps the session; nil if the
	// session no longer has an attendant.
	Run          *session.Processing
	LastActivity time.Time
}
