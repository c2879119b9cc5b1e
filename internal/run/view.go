package run

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// View is a run as clients see it: the session or bundle that it continues, and its outcome. A run outlives its claims.
type View struct {
	ID        string
	SessionID string
	PromptID  string
	Agent     string
	// BaseSession and BaseBundle are the session and the bundle that it was asked to continue;
	// empty for a prompt that was not submitted as a run. The bundle is also empty where the
	// session had worked since its newest one.
	BaseSession, BaseBundle string
	JoinedTo                string // the prompt with which the agent gets its prompt; empty for none
	Status                  session.PromptStatus
	Reason                  string
	Attempts                int                  // how often the prompt was claimed
	Usage                   *session.PromptUsage // of its last attempt, once that is over
	BundleID                string               // the first bundle with what it did, and nothing after it; empty if it did not complete, or none was saved
	CreatedAt               time.Time
	StartedAt, EndedAt      time.Time
}

// Forked reports whether the session was made for the run.
func (v View) Forked() bool { return v.BaseSession != "" && v.BaseSession != v.SessionID }

// Request asks for a run.
type Request struct {
	Prompt session.Prompt // the session follows from the base
	// The run continues BaseSession or BaseBundle.
	BaseSession, BaseBundle string
	Fork                    bool   // whatever the base is doing
	SessionID               string // of the session that is made if it forks
	Profile                 string // of that session; empty: that of the base
	Agent                   string // of that session; empty: that of the base
}

// Filter selects runs.
type Filter struct {
	SessionID string
	Status    session.PromptStatus
	Agent     string
	Limit     int
	Cursor    string
}

// MaxWait bounds how long a request waits for the end of a run.
const MaxWait = 10 * time.Minute
