package contract

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// WorkflowName is the registered name of the session workflow; the workflow id
// is the session id.
const WorkflowName = "Session"

// Names of the messages that the workflow takes.
const (
	SignalPrompt    = "prompt"
	SignalWake      = "wake"
	SignalHibernate = "hibernate"
	SignalStop      = "stop"
	SignalAbort     = "abort"
	SignalRecover   = "recover"
	SignalSettings  = "settings"
	SignalSandbox   = "sandbox"
	SignalSync      = "sync"
	SignalRestart   = "restart"
	SignalRevert    = "revert"
	// SignalCommands says that commands of the session are pending in Postgres. Processes of earlier
	// versions send a signal for each kind of command instead.
	SignalCommands = "commands"
	// SignalAttended names prompts that came while the session had an attendant. It only puts them into the workflow's history.
	SignalAttended = "attended"
	QueryState     = "state"
)

// Typed search attributes; registered by the Temporal server that dev runs and
// named in docs for any other.
const (
	AttributeStatus     = "OverwinterStatus"
	AttributeAgent      = "OverwinterAgent"
	AttributeOwner      = "OverwinterOwner"
	AttributeWorkspace  = "OverwinterWorkspace"
	AttributeGeneration = "OverwinterGeneration"
)

// WorkflowInput starts the workflow of a session. Everything else is in
// Postgres, so that a workflow that was reset or revived finds the truth there.
type WorkflowInput struct {
	SessionID string `json:"sessionId"`
	// Carry is what continue-as-new hands to the next run; nil otherwise.
	Carry *Carry `json:"carry,omitempty"`
}

// Carry is the part of a workflow's state that is not in Postgres.
type Carry struct {
	Wants Wants    `json:"wants"`
	Seen  []string `json:"seen,omitempty"` // ids of prompts signaled lately, oldest first
	Runs  int64    `json:"runs"`           // continue-as-new count
	// Retries is how often the session has left error by itself since it last ran.
	Retries int `json:"retries,omitempty"`
	// LastActivity is what the idle timeout is counted from. Runs of earlier versions do not hand it on.
	LastActivity time.Time `json:"lastActivity,omitzero"`
	// ErrorSince is since when the session is in error and has kept its sandbox.
	ErrorSince time.Time `json:"errorSince,omitzero"`
	// Delay is an operation that keeps failing; nil for none.
	Delay *CarriedDelay `json:"delay,omitempty"`
	// Losses are sandboxes that ended one after the other; nil for none.
	Losses *CarriedLosses `json:"losses,omitempty"`
}

// CarriedLosses are sandboxes in a row that ended soon after they were ready.
type CarriedLosses struct {
	Times    int       `json:"times"`
	Since    time.Time `json:"since"`
	Up       time.Time `json:"up,omitzero"`
	Paused   int       `json:"paused,omitempty"`
	Reported time.Time `json:"told,omitzero"`
}

// CarriedDelay is an operation that keeps failing for a reason that may pass.
type CarriedDelay struct {
	Code     string    `json:"code"`
	Times    int       `json:"times"`
	Since    time.Time `json:"since"`
	Reported time.Time `json:"told,omitzero"`
	Cause    string    `json:"cause,omitempty"`
}

// Wants are the commands that were accepted and not yet carried out.
type Wants struct {
	Stop      bool `json:"stop,omitempty"`
	Hibernate bool `json:"hibernate,omitempty"`
	Force     bool `json:"force,omitempty"`
	// Drop and Restart say what a hibernation that is wanted is for: to give the sandbox up without
	// a snapshot, or to wake at once in a new one.
	Drop    bool `json:"drop,omitempty"`
	Restart bool `json:"restart,omitempty"`
	Sync    bool `json:"sync,omitempty"` // save a bundle and work on
	// Revert is the prompt to before which the agent is to be reverted.
	Revert  string `json:"revert,omitempty"`
	Wake    bool   `json:"wake,omitempty"`
	Recover bool   `json:"recover,omitempty"`
}

// ForgetSandbox drops every pending request to leave the sandbox, or to save what is in it: it has
// been fulfilled, or there is no sandbox.
func (w *Wants) ForgetSandbox() {
	w.Hibernate, w.Force, w.Drop, w.Restart, w.Sync = false, false, false, false, false
}

// PromptSignal signals a prompt whose row is in Postgres.
type PromptSignal struct {
	PromptID string    `json:"promptId"`
	Ordinal  int64     `json:"ordinal"`
	At       time.Time `json:"at"`
}

// AttendedSignal names prompts that were submitted to an attended session, which were not signalled one by one.
type AttendedSignal struct {
	Prompts []session.QueuedPrompt `json:"prompts"`
}

// HibernateSignal asks for hibernation: after the running turn, or at once with Force.
type HibernateSignal struct {
	Force bool `json:"force,omitempty"`
	Drop  bool `json:"drop,omitempty"` // without a snapshot
}

// RestartSignal asks for a new sandbox with all that is in the old one: after the running turn, or
// at once with Force.
type RestartSignal struct {
	Force bool `json:"force,omitempty"`
}

// RevertSignal asks to revert the agent to before a prompt, after the running turn, or at once with
// Force. A session that sleeps wakes for it.
type RevertSignal struct {
	PromptID string `json:"promptId"`
	Force    bool   `json:"force,omitempty"`
}

// SettingsSignal notifies the workflow of a changed setting.
type SettingsSignal struct {
	IdleTimeout time.Duration `json:"idleTimeout"`
}

// AbortSignal asks to interrupt the running turn. An empty RunID means whichever runs.
type AbortSignal struct {
	RunID string `json:"runId,omitempty"`
}

// SandboxSignal reports that the provider says the sandbox of a generation has ended.
type SandboxSignal struct {
	Generation int64  `json:"generation"`
	Reason     string `json:"reason"`
	Limit      string `json:"limit,omitempty"` // that it exceeded, if the provider ended it for that
	// SandboxID distinguishes the sandbox that ended from a later one of the same generation: a
	// generation whose sandbox never became ready is created again. Reports of earlier versions do
	// not have it.
	SandboxID string `json:"sandboxId,omitempty"`
}

// StateView is the answer to the query `state`: the workflow's own view.
type StateView struct {
	SessionID    string        `json:"sessionId"`
	Status       session.State `json:"status"`
	StatusReason string        `json:"statusReason,omitempty"`
	Generation   int64         `json:"generation"`
	TransitionNo int64         `json:"transitionNo"`
	Doing        string        `json:"doing"` // what the main routine waits for, in words
	RunID        string        `json:"runId,omitempty"`
	PromptID     string        `json:"promptId,omitempty"`
	Queue        []string      `json:"queue"`
	Wants        Wants         `json:"wants"`
	LastActivity time.Time     `json:"lastActivity"`
	IdleTimeout  string        `json:"idleTimeout"` // a Go duration
	Continued    int64         `json:"continued"`   // continue-as-new count
}

// Awaited is what an attempt at an activity waits for, and since when: the details of its heartbeats.
type Awaited struct {
	What  string    `json:"what"`
	Since time.Time `json:"since"`
}
