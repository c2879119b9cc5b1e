package why

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// How much is read of a workflow's history, the newest first.
const (
	MaxHistoryEvents = 1000
	HistoryPageSize  = 250
)

// SlowAfter is how long an attempt at a step takes before an explanation mentions it. Turns take as long as the agent works.
const SlowAfter = 10 * time.Second

// History is what Temporal knows of the workflow of a session.
type History struct {
	// Err is why it was not read; empty if it was.
	Err       string
	Open      bool
	RunID     string // of the newest run
	StartedAt time.Time
	Events    []Event // oldest first, of those that say something
	Read      int     // how many events were read
	Truncated bool
	Pending   []Pending
	// TaskSince is since when a task of the workflow waits for a worker; zero if none does.
	TaskSince time.Time
	// View is what the workflow itself holds; nil if no worker has answered.
	View *View
}

// View is the workflow's own view of its session.
type View struct {
	Status       session.State
	TransitionNo int64
	RunID        string
	Doing        string
}

// EventKind is what happened in a history.
type EventKind string

// The kinds of event.
const (
	AttemptFailed EventKind = "attempt_failed" // of an activity, after which another may follow
	StepWasSlow   EventKind = "step_was_slow"  // an attempt of an activity succeeded after more than SlowAfter
	TaskTimedOut  EventKind = "task_timed_out" // a worker did not complete a task of the workflow
	TaskFailed    EventKind = "task_failed"    // the workflow's code
	Signalled     EventKind = "signalled"
	Terminated    EventKind = "terminated"
	CancelAsked   EventKind = "cancel_asked"
	Reset         EventKind = "reset"
	RunFailed     EventKind = "run_failed"
)

// Event is one event of a history.
type Event struct {
	At         time.Time
	Kind       EventKind
	Activity   string        // of an attempt
	Took       time.Duration // of a slow attempt
	Attempt    int32         // that follows, of an attempt
	Failure    Failure
	Worker     string // its identity, if it is known
	Signal     string // its name
	Sandbox    string // of a signal that a sandbox has ended: the reason
	Generation int64  // of that sandbox
	Reason     string // that an operator gave
}

// FailureKind is how an attempt failed.
type FailureKind string

// The kinds of failure.
const (
	HeartbeatTimeout FailureKind = "heartbeat_timeout" // the worker was killed, or hung
	StartTimeout     FailureKind = "start_timeout"     // no worker took it
	OtherTimeout     FailureKind = "timeout"
	Application      FailureKind = "application"
	Cancelled        FailureKind = "cancelled"
)

// Failure is why an attempt failed.
type Failure struct {
	Kind    FailureKind
	Type    string // of an application's failure
	Message string
}

// Pending is an activity that is not over.
type Pending struct {
	Activity    string
	Attempt     int32
	Started     bool // a worker has it
	ScheduledAt time.Time
	StartedAt   time.Time // of the attempt that a worker has
	HeartbeatAt time.Time // of the last heartbeat; zero if there was none
	// Awaits is what the attempt waits for, by its last heartbeat, and since when; empty if it did not say.
	Awaits      string
	AwaitsSince time.Time
	Failure     *Failure // of the attempt before; it is among the events too
}
