package session

import "time"

// RunView is a run for those who read it: what a prompt was asked to continue, and what became of it. A run outlives its claims.
type RunView struct {
	ID        string
	SessionID string
	PromptID  string
	Agent     string
	// BaseSession and BaseBundle are what it was asked to continue; empty for a prompt that was not submitted as a run. The bundle is also
	// empty where the session had worked since its newest one.
	BaseSession, BaseBundle string
	JoinedTo                string // the prompt with which the agent gets its prompt; empty for none
	Status                  PromptStatus
	Reason                  string
	Attempts                int          // how often the prompt was claimed
	Usage                   *PromptUsage // of its last attempt, once that is over
	BundleID                string       // the first bundle with what it did, and nothing after it; empty if it did not complete, or none was saved
	CreatedAt               time.Time
	StartedAt, EndedAt      time.Time
}

// Forked reports whether the session was made for the run.
func (v RunView) Forked() bool { return v.BaseSession != "" && v.BaseSession != v.SessionID }

// RunRequest asks for a run.
type RunRequest struct {
	Prompt Prompt // the session follows from the base
	// BaseSession or BaseBundle is what the run continues.
	BaseSession, BaseBundle string
	Fork                    bool   // whatever the base is doing
	SessionID               string // of the session that is made if it forks
	Profile                 string // of that session; empty: that of the base
	Agent                   string // of that session; empty: that of the base
}

// RunFilter selects runs.
type RunFilter struct {
	SessionID string
	Status    PromptStatus
	Agent     string
	Limit     int
	Cursor    string
}

// MaxRunWait bounds how long a request waits for the end of a run.
const MaxRunWait = 10 * time.Minute
