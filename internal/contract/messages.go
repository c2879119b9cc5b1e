package contract

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// WorkflowName is the registered name of the session workflow; the workflow id
// is the session id.
const WorkflowName = "Session"

// Names of the messages that the workflow accepts.
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
	// SignalCommands reports that commands of the session are pending in Postgres. Processes of
	// earlier versions send a signal for each kind of command instead.
	SignalCommands = "commands"
	// SignalAttended names prompts that were submitted while the session had an attendant. It only
	// records them in the workflow's history.
	SignalAttended = "attended"
	QueryState     = "state"
)

// Typed search attributes. The Temporal server of dev registers them; the documentation lists them
// for other servers.
const (
	AttributeStatus     = "OverwinterStatus"
	AttributeAgent      = "OverwinterAgent"
	AttributeOwner      = "OverwinterOwner"
	AttributeWorkspace  = "OverwinterWorkspace"
	AttributeGeneration = "OverwinterGeneration"
)

// WorkflowInput starts the workflow of a session. Everything else is in Postgres, where a workflow
// that was reset or revived reads it.
type WorkflowInput struct {
	SessionID string `json:"sessionId"`
	// Carried is the state that continue-as-new passes to the next run; nil otherwise.
	Carried *CarriedState `json:"carry,omitempty"`
}

// CarriedState is the part of a workflow's state that is not in Postgres.
type CarriedState struct {
	Wants Wants    `json:"wants"`
	Seen  []string `json:"seen,omitempty"` // ids of prompts signaled lately, oldest first
	Runs  int64    `json:"runs"`           // continue-as-new count
	// Retries is how often the session has left error by itself since it last ran.
	Retries int `json:"retries,omitempty"`
	// LastActivity is the time from which the idle timeout counts. Runs of earlier versions do not
	// pass it on.
	LastActivity time.Time `json:"lastActivity,omitzero"`
	// ErrorSince is the time since which the session has been in error with its sandbox kept.
	ErrorSince time.Time `json:"errorSince,omitzero"`
	// Delay is an operation that keeps failing; nil for none.
	Delay *CarriedDelay `json:"delay,omitempty"`
	// Losses are consecutive sandboxes that ended; nil for none.
	Losses *CarriedLosses `json:"losses,omitempty"`
}

// CarriedLosses are consecutive sandboxes that ended soon after they were ready.
type CarriedLosses struct {
	Times    int       `json:"times"`
	Since    time.Time `json:"since"`
	Up       time.Time `json:"up,omitzero"`
	Paused   int       `json:"paused,omitempty"`
	Reported time.Time `json:"told,omitzero"`
}

// CarriedDelay is an operation that keeps failing for a temporary reason.
type CarriedDelay struct {
	Code     string    `json:"code"`
	Times    int       `json:"times"`
	Since    time.Time `json:"since"`
	Reported time.Time `json:"told,omitzero"`
	Cause    string    `json:"cause,omitempty"`
}

// Wants are the accepted commands that are not yet carried out.
type Wants struct {
	Stop      bool `json:"stop,omitempty"`
	Hibernate bool `json:"hibernate,omitempty"`
	Force     bool `json:"force,omitempty"`
	// Drop and Restart are the purpose of a requested hibernation: to discard the sandbox without a
	// snapshot, or to wake at once in a new one.
	Drop    bool `json:"drop,omitempty"`
	Restart bool `json:"restart,omitempty"`
	Sync    bool `json:"sync,omitempty"` // save a bundle and continue
	// Revert is the first prompt that a requested revert of the agent undoes.
	Revert  string `json:"revert,omitempty"`
	Wake    bool   `json:"wake,omitempty"`
	Recover bool   `json:"recover,omitempty"`
}

// ForgetSandbox drops every pending request to leave or save the sandbox, because it has been
// fulfilled or there is no sandbox.
func (w *Wants) ForgetSandbox() {
	w.Hibernate, w.Force, w.Drop, w.Restart, w.Sync = false, false, false, false, false
}

// PromptSignal signals a prompt whose row is in Postgres.
type PromptSignal struct {
	PromptID string    `json:"promptId"`
	Ordinal  int64     `json:"ordinal"`
	At       time.Time `json:"at"`
}

// AttendedSignal names prompts that were submitted to an attended session without a signal for
// each.
type AttendedSignal struct {
	Prompts []session.QueuedPrompt `json:"prompts"`
}

// HibernateSignal requests hibernation: after the running turn, or at once with Force.
type HibernateSignal struct {
	Force bool `json:"force,omitempty"`
	Drop  bool `json:"drop,omitempty"` // without a snapshot
}

// RestartSignal requests a new sandbox with the content of the old one: after the running turn, or
// at once with Force.
type RestartSignal struct {
	Force bool `json:"force,omitempty"`
}

// RevertSignal requests a revert of the agent to its state before a prompt, after the running turn,
// or at once with Force. It wakes a sleeping session.
type RevertSignal struct {
	PromptID string `json:"promptId"`
	Force    bool   `json:"force,omitempty"`
}

// SettingsSignal notifies the workflow of a changed setting.
type SettingsSignal struct {
	IdleTimeout time.Duration `json:"idleTimeout"`
}

// AbortSignal requests an interruption of the running turn. An empty RunID selects any running one.
type AbortSignal struct {
	RunID string `json:"runId,omitempty"`
}

// SandboxSignal reports that, according to the provider, the sandbox of a generation has ended.
type SandboxSignal struct {
	Generation int64  `json:"generation"`
	Reason     string `json:"reason"`
	Limit      string `json:"limit,omitempty"` // that it exceeded, if the provider ended it for that reason
	// SandboxID distinguishes the sandbox that ended from a later one of the same generation: a
	// generation whose sandbox never became ready is created again. Reports of earlier versions do
	// not have it.
	SandboxID string `json:"sandboxId,omitempty"`
}

// StateView is the result of the query `state`: the workflow's own view.
type StateView struct {
	SessionID    string        `json:"sessionId"`
	Status       session.State `json:"status"`
	StatusReason string        `json:"statusReason,omitempty"`
	Generation   int64         `json:"generation"`
	TransitionNo int64         `json:"transitionNo"`
	Doing        string        `json:"doing"` // what the main routine waits for, as text
	RunID        string        `json:"runId,omitempty"`
	PromptID     string        `json:"promptId,omitempty"`
	Queue        []string      `json:"queue"`
	Wants        Wants         `json:"wants"`
	LastActivity time.Time     `json:"lastActivity"`
	IdleTimeout  string        `json:"idleTimeout"` // a Go duration
	Continued    int64         `json:"continued"`   // continue-as-new count
}

// Awaited has the details of an activity's heartbeats: what its attempt waits for, and since when.
type Awaited struct {
	What  string    `json:"what"`
	Since time.Time `json:"since"`
}
