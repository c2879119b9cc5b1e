package why

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// Bounds of the data that is read of a session.
const (
	MaxTransitions = 30
	MaxCommands    = 120
	MaxSandboxes   = 20
	MaxBundles     = 20
	MaxRuns        = 20
	MaxQuestions   = 20
	MaxProblems    = 50
	MaxOutages     = 50
	// MaxEventsSearched bounds the newest events in which problems are searched.
	MaxEventsSearched = 5000
	// MaxCauses bounds an explanation.
	MaxCauses = 40
)

// Facts has the rows of a session that an explanation needs.
type Facts struct {
	Session     session.Session
	Now         time.Time
	WorkflowRun string // the workflow run that opened it last
	Attended    bool   // a worker claims its prompts by itself, unknown to the workflow
	Transitions []Step // oldest first
	Commands    []session.Command
	Sandboxes   []Sandbox // newest first, like all that follow
	Bundles     []Bundle
	Problems    []Problem
	Outages     []Outage // of the installation
	Runs        []Run    // of the explained prompt, or of the session

	Prompt     *session.Prompt // the explained one, without its content
	Processing string          // the prompt that is processed
	Ahead      int64           // prompts that come before it in the queue
	Questions  []Asked         // the explained one, or those of the session
	Retry      *Retry          // the newest action of an agent, if it retries a request to its model
	Woke       *Waiting        // the prompt that waited at the last transition that woke the session
}

// Step is a transition with its command.
type Step struct {
	session.Transition
	CommandID string
}

// Waiting is a prompt that waited.
type Waiting struct {
	ID        string
	CreatedAt time.Time
}

// Sandbox is one generation of a session.
type Sandbox struct {
	Generation int64
	ID         string // empty until it is known to exist
	Status     session.SandboxStatus
	ReservedAt time.Time
	ReadyAt    time.Time
	Deadline   time.Time
	SeenAt     time.Time
	EndedAt    time.Time
	EndReason  string
}

// Bundle is what a session wakes from.
type Bundle struct {
	ID           string
	Generation   int64
	HasSnapshot  bool
	SnapshotGone bool
	Checkpoint   bool
	Verified     bool
	CreatedAt    time.Time
}

// Problem is an error event.
type Problem struct {
	At      time.Time
	Code    string
	Message string
}

// Outage is a period in which a worker did not reach a part of the installation.
type Outage struct {
	Code         Code // DatabaseUnavailable or TemporalUnavailable
	Since, Until time.Time
}

// Run is one attempt of the agent at a prompt.
type Run struct {
	ID         string
	PromptID   string
	Generation int64
	Attempt    int64
	Part       int64
	Outcome    session.Outcome
	Reason     string
	StartedAt  time.Time
	EndedAt    time.Time
	ParkedAt   time.Time
}

// Retry is a request to a model that an agent retries.
type Retry struct {
	RunID   string
	At      time.Time
	Message string
}

// Asked is a question without its text.
type Asked struct {
	ID         string
	RunID      string
	Status     string
	Reason     string
	CreatedAt  time.Time
	ExpiresAt  time.Time
	ResolvedAt time.Time
	Parked     bool
}
