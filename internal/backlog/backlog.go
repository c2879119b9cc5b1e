// Package backlog has the rows that are read for all sessions at once: waiting work, due work, and
// counts. The relay, the reconciler, the shutdown and the gauges use it.
package backlog

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// Count is the number of sessions of an agent with a status.
type Count struct {
	Status   session.State
	Agent    string
	Sessions int64
}

// Unfinished counts the waiting work of all sessions.
type Unfinished struct {
	Questions  int64 // that are open
	Queued     int64 // prompts
	Processing int64 // prompts
	// Oldest is the longest waiting time of a prompt whose session processes no other prompt and is
	// not in error, and whose queue is not held; 0 if there is none.
	Oldest time.Duration
}

// Unclaimed is a session with work that no run has claimed.
type Unclaimed struct {
	SessionID string
	PromptID  string // empty if the session itself has not been started
	Ordinal   int64
}

// Awake is a session that has, gets or releases a sandbox.
type Awake struct {
	SessionID string
	Status    session.State
	RunID     string // the run in progress; empty for none
}

// Attended is a loaded session with pending work.
type Attended struct {
	SessionID string
	RunID     string // an open run without recent progress; empty for none
	Status    session.State
	// WorkflowRun is the run of the workflow that opened the session last; empty if one of an earlier version did.
	WorkflowRun string
}

// Overdue is a session with a command that its workflow may not have read.
type Overdue struct {
	SessionID string
	Stop      bool   // a stop is pending
	HeardBy   string // the workflow run that has read its newest command; empty when none has
}
