package session

import (
	"cmp"
	"time"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// PromptStatus is where a prompt stands.
type PromptStatus string

// The statuses of a prompt. Queued and processing are the ones that are not over.
const (
	PromptQueued     PromptStatus = "queued"
	PromptProcessing PromptStatus = "processing"
	PromptCompleted  PromptStatus = "completed"
	PromptFailed     PromptStatus = "failed"
	PromptCancelled  PromptStatus = "cancelled"
	// PromptUnknown: delivered, and then the only witness was lost. It is unknown whether the agent
	// did the work; OnUnknown says what follows.
	PromptUnknown PromptStatus = "unknown"
)

// PromptStatuses are all statuses of prompts.
var PromptStatuses = []PromptStatus{PromptQueued, PromptProcessing, PromptCompleted, PromptFailed, PromptCancelled, PromptUnknown}

// Final reports whether the prompt has its outcome.
func (s PromptStatus) Final() bool { return s != PromptQueued && s != PromptProcessing }

// Mode says how a prompt is delivered while a turn is running.
type Mode string

// The modes of delivery. Followup, the default, waits for its turn. Collect is a followup that waits for others of its mode before, so that the
// agent gets them as one. Steer is given to the turn in progress if its agent takes that; otherwise it interrupts the turn and comes before all that wait.
const (
	Followup Mode = "followup"
	Steer    Mode = "steer"
	Collect  Mode = "collect"
)

// OnUnknown is the policy for a prompt whose outcome was lost.
type OnUnknown string

// The policies for a lost outcome. Hold, the default, leaves it to a person, as a [Resolution] of the prompt; the prompts
// after it run.
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
	Rank      int64 // prompts that wait run in the order of rank and, within it, of ordinal; 0 unless promoted
	Status    PromptStatus
	Content   string
	Mode      Mode
	OnUnknown OnUnknown
	Author    string
	Depth     int64  // how many messages of agents led to it, one by the other; 0 unless its author is an agent
	RunID     string // the claim that has or had it
	Reason    string // why it ended so; one of the Reason constants, or the agent's words
	// BlockedReason is why a queued prompt does not run: the reason of its session's error.
	BlockedReason string
	// AllottedRun is the run that it was given when it was submitted; empty for one of an earlier release that has not been claimed.
	AllottedRun string
	// Claims is how often it has been claimed. It is read by PromptGet and PromptList alone.
	Claims int
	// BaseSession and BaseBundle are what its run was asked to continue; empty for one that was submitted as a prompt.
	BaseSession, BaseBundle string
	// JoinedTo is the prompt with which the agent gets this one, and with which it ends; empty if it has a turn for itself.
	JoinedTo string
	// CollectUntil is until when others may join it; zero if none may.
	CollectUntil time.Time
	// Usage is of its last run, once that is over. It is read by PromptGet and PromptList alone.
	Usage *PromptUsage
	// Resolved is the last resolution of an unknown outcome; nil if there is none.
	Resolved *Resolved
	// RequestID is the X-Request-Id of the request that accepted it; empty if it is not known.
	RequestID string
	// TraceParent is the trace of that request, as a W3C traceparent; empty if it is not traced.
	TraceParent string
	// Attachments are the files that it comes with. Only a prompt that is submitted has their content.
	Attachments []attachment.Attachment
	CreatedAt   time.Time
	StartedAt   time.Time // zero until a run has it
	EndedAt     time.Time // zero until it is over
	// Notify is set by the store's PromptSubmit alone: the workflow is to be signalled.
	Notify bool
	// Attended is set by the store's PromptSubmit alone: the workflow would have to be signalled, but the session has an
	// attendant, which is expected to claim the prompt at once.
	Attended bool
	// Interrupts is set by the store's PromptSubmit alone: the workflow is to be signalled of a command that interrupts the turn in progress.
	Interrupts bool
	// CollectFor is, of a prompt that is submitted, how long it is collected, and of one that PromptSubmit returns how much of that is left.
	CollectFor time.Duration
}

// Run is the run of the prompt as clients know it: the one that has it, or else the one that it was allotted. It is another one than that
// only for a prompt that is joined to another.
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
	ReasonQuestion          = "question"         // a question is open and nothing else happens
	ReasonAnswer            = "answer"           // the question that the session slept with was answered
	ReasonQuestionExpired   = "question_expired" // it was not, in its time
	ReasonRestart           = "restart"          // in a new sandbox, unchanged
	ReasonDropped           = "dropped"          // its sandbox was given up with all files in it
	ReasonPrompt            = "prompt"
	ReasonRetry             = "retry" // after an error that may have passed
	ReasonAborted           = "aborted"
	ReasonShutdown          = "shutdown" // the installation was stopped
	ReasonWithdrawn         = "withdrawn"
	ReasonCleared           = "cleared"
	ReasonSteered           = "steered"    // a prompt of the mode steer interrupted it
	ReasonCollected         = "collected"  // it ended with the prompt that it was joined to
	ReasonJoined            = "joined"     // the agent took it in the turn of another prompt, and it ended with that
	ReasonCheckpoint        = "checkpoint" // of a sync: options.checkpoint asks for it
	ReasonReverted          = "reverted"   // the agent was reverted to before it
	ReasonResolved          = "resolved"   // a person said how it ended
	ReasonDismissed         = "dismissed"
	ReasonSessionTerminated = "session_terminated"
	ReasonSandboxLost       = "sandbox_lost"
	ReasonAgentCrashed      = "agent_crashed"
	ReasonQuarantined       = "quarantined" // its frames ended workers
	ReasonNothingToRestore  = "nothing_to_restore"
)
