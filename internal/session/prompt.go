package session

import (
	"cmp"
	"time"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// PromptStatus is the status of a prompt.
type PromptStatus string

// The statuses of a prompt. All except queued and processing are final.
const (
	PromptQueued     PromptStatus = "queued"
	PromptProcessing PromptStatus = "processing"
	PromptCompleted  PromptStatus = "completed"
	PromptFailed     PromptStatus = "failed"
	PromptCancelled  PromptStatus = "cancelled"
	// PromptUnknown: the prompt was delivered, and then its sandbox was lost. It is unknown whether
	// the agent did the work; OnUnknown decides what follows.
	PromptUnknown PromptStatus = "unknown"
)

// PromptStatuses are all statuses of prompts.
var PromptStatuses = []PromptStatus{PromptQueued, PromptProcessing, PromptCompleted, PromptFailed, PromptCancelled, PromptUnknown}

// Final reports whether the prompt has its outcome.
func (s PromptStatus) Final() bool { return s != PromptQueued && s != PromptProcessing }

// Mode is how a prompt is delivered while a turn is running.
type Mode string

// The modes of delivery. Followup, the default, waits for its turn. Collect is a followup that
// first waits for others of its mode, so that the agent gets them as one prompt. Steer is given to
// the turn in progress if the agent accepts that; otherwise it interrupts the turn and precedes all
// queued prompts.
const (
	Followup Mode = "followup"
	Steer    Mode = "steer"
	Collect  Mode = "collect"
)

// OnUnknown is the policy for a prompt whose outcome is unknown.
type OnUnknown string

// The policies for an unknown outcome. Hold, the default, leaves it to a person, as a [Resolution]
// of the prompt; later prompts run.
const (
	Hold  OnUnknown = "hold"
	Retry OnUnknown = "retry"
	Fail  OnUnknown = "fail"
)

// Prompt is one message to the agent, with its outcome.
type Prompt struct {
	ID        string
	SessionID string
	Ordinal   int64 // in the order in which they were submitted, 1, 2, …
	Rank      int64 // queued prompts run in the order of rank and, within it, of ordinal; 0 unless promoted
	Status    PromptStatus
	Content   string
	Mode      Mode
	OnUnknown OnUnknown
	Author    string
	Depth     int64  // length of the chain of messages of agents that led to it; 0 unless its author is an agent
	RunID     string // id of its latest claim
	Reason    string // why it ended with its status; one of the Reason constants, or the agent's text
	// BlockedReason is why a queued prompt cannot run: the reason of its session's error.
	BlockedReason string
	// AllottedRun is the run that was assigned when it was submitted; empty for a prompt of an
	// earlier release that has not been claimed.
	AllottedRun string
	// Claims is the number of its claims. Only PromptGet and PromptList set it.
	Claims int
	// BaseSession and BaseBundle are the base that its run was asked to continue; empty if it was
	// submitted as a prompt.
	BaseSession, BaseBundle string
	// JoinedTo is the prompt together with which the agent gets this one, and with which it ends;
	// empty if it has its own turn.
	JoinedTo string
	// CollectUntil is the time until which others may join it; zero if none may.
	CollectUntil time.Time
	// Usage is that of its last run, once that has ended. Only PromptGet and PromptList set it.
	Usage *PromptUsage
	// Resolved is the last resolution of an unknown outcome; nil if there is none.
	Resolved *Resolved
	// RequestID is the X-Request-Id of the request that submitted it; empty if unknown.
	RequestID string
	// TraceParent is the trace of that request, as a W3C traceparent; empty if it is not traced.
	TraceParent string
	// Attachments are its files. Their content is only set when the prompt is submitted.
	Attachments []attachment.Attachment
	CreatedAt   time.Time
	StartedAt   time.Time // zero until a run claims it
	EndedAt     time.Time // zero until it has ended
	// Notify is only set by the store's PromptSubmit: the workflow must be signalled.
	Notify bool
	// Attended is only set by the store's PromptSubmit: the workflow would have to be signalled,
	// but the session has an attendant, which is expected to claim the prompt immediately.
	Attended bool
	// Interrupts is only set by the store's PromptSubmit: the workflow must be signalled of a
	// command that interrupts the turn in progress.
	Interrupts bool
	// CollectFor is how long a submitted prompt is collected; in the result of PromptSubmit, the
	// remaining time.
	CollectFor time.Duration
}

// Run returns the run of the prompt as shown to clients: that of its claim, otherwise the allotted
// one. They differ only for a prompt that is joined to another.
func (p Prompt) Run() string { return cmp.Or(RunOf(p.RunID), p.AllottedRun) }

// PromptUsage is the usage of a prompt's last run, and its model if that is known.
type PromptUsage struct {
	usage.Usage
	Model string
}

// Reasons of transitions and of ended prompts that clients may rely on.
const (
	ReasonIdle              = "idle"
	ReasonRequested         = "requested"
	ReasonLost              = "lost"
	ReasonLifetime          = "lifetime"
	ReasonQuestion          = "question"         // the session only waits for a question
	ReasonAnswer            = "answer"           // the question that the session slept with was answered
	ReasonQuestionExpired   = "question_expired" // the question expired
	ReasonRestart           = "restart"          // in a new sandbox, unchanged
	ReasonDropped           = "dropped"          // its sandbox was discarded with all files in it
	ReasonPrompt            = "prompt"
	ReasonRetry             = "retry" // after a possibly transient error
	ReasonAborted           = "aborted"
	ReasonShutdown          = "shutdown" // the installation was stopped
	ReasonWithdrawn         = "withdrawn"
	ReasonCleared           = "cleared"
	ReasonSteered           = "steered"    // a prompt of the mode steer interrupted it
	ReasonCollected         = "collected"  // it ended with the prompt to which it was joined
	ReasonJoined            = "joined"     // the agent accepted it in the turn of another prompt, with which it ended
	ReasonCheckpoint        = "checkpoint" // of a sync that options.checkpoint requested
	ReasonReverted          = "reverted"   // the agent was reverted to before it
	ReasonResolved          = "resolved"   // a person chose the outcome
	ReasonDismissed         = "dismissed"
	ReasonSessionTerminated = "session_terminated"
	ReasonSandboxLost       = "sandbox_lost"
	ReasonAgentCrashed      = "agent_crashed"
	ReasonQuarantined       = "quarantined" // its frames made workers crash
	ReasonNothingToRestore  = "nothing_to_restore"
)
