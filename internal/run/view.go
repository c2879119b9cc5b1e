package run

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// View is a run in the form for clients: the session or bundle that it continues, and its outcome.
// A run outlives its claims.
type View struct {
	ID        string
	SessionID string
	PromptID  string
	Agent     string
	// BaseSession and BaseBundle are the session and the bundle that it was asked to continue;
	// empty for a prompt that was not submitted as a run. The bundle is also empty if the session
	// had worked since its newest one.
	BaseSession, BaseBundle string
	JoinedTo                string // the prompt to which its prompt is joined; empty for none
	Status                  session.PromptStatus
	Reason                  string
	Attempts                int                  // number of claims of the prompt
	Usage                   *session.PromptUsage // usage of its last attempt, once that has ended
	BundleID                string               // the first bundle with its result and no later work; empty if it did not complete, or none was saved
	CreatedAt               time.Time
	StartedAt, EndedAt      time.Time
}

// Forked reports whether the session was created for the run.
func (v View) Forked() bool { return v.BaseSession != "" && v.BaseSession != v.SessionID }

// Request is a request for a run.
type Request struct {
	Prompt session.Prompt // the base determines the session
	// The run continues BaseSession or BaseBundle.
	BaseSession, BaseBundle string
	Fork                    bool   // regardless of the state of the base
	SessionID               string // id of the new session if it forks
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

// MaxWait bounds how long a request may wait for the end of a run.
const MaxWait = 10 * time.Minute
