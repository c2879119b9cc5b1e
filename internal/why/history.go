package why

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// Bounds of the part of a workflow's history that is read, the newest first.
const (
	MaxHistoryEvents = 1000
	HistoryPageSize  = 250
)

// SlowAfter is the duration after which an explanation mentions an attempt at a step. It does not
// apply to turns, which take as long as the agent works.
const SlowAfter = 10 * time.Second

// History is Temporal's information about the workflow of a session.
type History struct {
	// Err is the reason why it was not read; empty if it was.
	Err       string
	Open      bool
	RunID     string // of the newest run
	StartedAt time.Time
	Events    []Event // relevant ones, oldest first
	Read      int     // number of events that were read
	Truncated bool
	Pending   []Pending
	// TaskSince is the time since which a workflow task waits for a worker; zero if none does.
	TaskSince time.Time
	// View is the workflow's own state; nil if no worker has responded.
	View *View
}

// View is the workflow's own view of its session.
type View struct {
	Status       session.State
	TransitionNo int64
	RunID        string
	Doing        string
}

// EventKind is the kind of an event in a history.
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

// FailureKind is the kind of a failure.
type FailureKind string

// The kinds of failure.
const (
	HeartbeatTimeout FailureKind = "heartbeat_timeout" // the worker was killed, or hung
	StartTimeout     FailureKind = "start_timeout"     // no worker took it
	OtherTimeout     FailureKind = "timeout"
	Application      FailureKind = "application"
	Cancelled        FailureKind = "cancelled"
)

// Failure describes the failure of an attempt.
type Failure struct {
	Kind    FailureKind
	Type    string // of an application's failure
	Message string
}

// Pending is a pending activity.
type Pending struct {
	Activity    string
	Attempt     int32
	Started     bool // a worker has it
	ScheduledAt time.Time
	StartedAt   time.Time // of the attempt that a worker has
	HeartbeatAt time.Time // of the last heartbeat; zero if there was none
	// Awaits is what the attempt waits for, and since when, according to its last heartbeat; empty
	// if unknown.
	Awaits      string
	AwaitsSince time.Time
	Failure     *Failure // of the previous attempt; it is among the events too
}
