package run

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// Claim asks for the next prompt of a session on behalf of its attendant.
type Claim struct {
	SessionID  string
	Attendant  string // the token that the attendance was granted to
	Generation int64  // that the attendant has a sandbox of
	RunID      string // proposed for a prompt that was allotted no run; the same again claims nothing more
	Token      string // of the run's first attempt, which is the attendant's
	Attempt    int64  // of the engine at the attendant's activity
}

// Claimed is the result of a claim of an attendant.
type Claimed struct {
	// Attended: the attendance continues. Otherwise the workflow has taken the session back, or is to have it back because
	// something other than a prompt waits.
	Attended bool
	Start    *Start // of the prompt that was claimed; nil if none waits
}

// TakenBack is the state of a session after its workflow has ended the attendance.
type TakenBack struct {
	session.Look
	// Run is in progress, and the attendant keeps the session until it ends. Nil: the session has no attendant any more.
	Run          *session.Processing
	LastActivity time.Time
}
