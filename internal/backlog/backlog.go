// Package backlog has what is read of all sessions at once: what waits, what is due, and how many there are. The relay,
// the reconciler, the shutdown and the gauges use it.
package backlog

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// Count is how many sessions of an agent have a status.
type Count struct {
	Status   session.State
	Agent    string
	Sessions int64
}

// Unfinished is what waits in all sessions together.
type Unfinished struct {
	Questions  int64 // that are open
	Queued     int64 // prompts
	Processing int64 // prompts
	// Oldest is how long the prompt that came first has waited whose session processes no other prompt and is not in
	// error, and whose queue is not held; 0 if there is none.
	Oldest time.Duration
}

// Unclaimed is a session that has work which no run has claimed.
type Unclaimed struct {
	SessionID string
	PromptID  string // empty when the session itself has not been taken up
	Ordinal   int64
}

// Awake is a session that has a sandbox, or gets one, or is giving it up.
type Awake struct {
	SessionID string
	Status    session.State
	RunID     string // the run in progress; empty for none
}

// Attended is a loaded session that has something to do.
type Attended struct {
	SessionID string
	RunID     string // an open run that has been silent lately; empty for none
	Status    session.State
	// WorkflowRun is the run of the workflow that opened the session last; empty if one of an earlier version did.
	WorkflowRun string
}

// Overdue is a session with a command that its workflow may not know of.
type Overdue struct {
	SessionID string
	Stop      bool   // a stop is pending
	HeardBy   string // the workflow run that has read its newest command; empty when none has
}
