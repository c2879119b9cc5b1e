package activities

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/deadline"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// Inputs and results of activities are part of workflow history: ids and small state only, never a
// prompt's text, a secret or an event.

// SessionRef names a session.
type SessionRef struct {
	SessionID string `json:"sessionId"`
}

// OpenedSession is the state of a session that its workflow starts with.
type OpenedSession struct {
	Status       session.State          `json:"status"`
	StatusReason string                 `json:"statusReason,omitempty"`
	ErrorCause   session.ErrorCause     `json:"errorCause,omitempty"`
	Agent        string                 `json:"agent"`
	Workspace    string                 `json:"workspace,omitempty"` // repository, for the search attribute
	Owner        string                 `json:"owner,omitempty"`     // for the search attribute
	Title        string                 `json:"title,omitempty"`     // set by a person, never taken from a prompt
	URL          string                 `json:"url,omitempty"`       // of the session in the API
	Lazy         bool                   `json:"lazy,omitempty"`
	IdleTimeout  time.Duration          `json:"idleTimeout"`
	LastActivity time.Time              `json:"lastActivity"`
	Generation   int64                  `json:"generation"`
	TransitionNo int64                  `json:"transitionNo"`
	Waiting      []session.QueuedPrompt `json:"waiting,omitempty"`
	Processing   *session.Processing    `json:"processing,omitempty"`
	BundleID     string                 `json:"bundleId,omitempty"` // the bundle to wake from
	SandboxID    string                 `json:"sandboxId,omitempty"`
	SandboxSince time.Time              `json:"sandboxSince,omitzero"` // when its life began
	Deadline     time.Time              `json:"deadline,omitzero"`
	// Queue is the task queue on which the workflow continues as new; "" is the current one.
	Queue string `json:"queue,omitempty"`
	// Commands are pending.
	Commands []PendingCommand `json:"commands,omitempty"`
	// Announce: the deadlines of the session are announced by events. Workflows that began before it continue without.
	Announce bool `json:"announce,omitempty"`
	// Held: the queue is held, so Waiting has no prompts.
	Held bool `json:"held,omitempty"`
	// ParkAfter is the time after which the session hibernates if its turn only waits for open
	// questions; 0 means never.
	ParkAfter time.Duration `json:"parkAfter,omitempty"`
	// Attend is how long turns of this session may be attended: see Attend. 0 for never.
	Attend time.Duration `json:"attend,omitempty"`
	// KeepsRoom: the workflow continues as new while its history has room for one more step. Workflows that were opened before
	// it continue as new when their history is full.
	KeepsRoom bool `json:"keepsRoom,omitempty"`
	// ClosesAsleep: the workflow is pinned to the build of its worker. It completes when the session sleeps, and starts on the current
	// build at the wake; if it continues as new, it does so on the current build.
	ClosesAsleep bool `json:"closesAsleep,omitempty"`
}

// DeadlineRequest requests the announcement of a deadline.
type DeadlineRequest struct {
	SessionID string        `json:"sessionId"`
	Kind      deadline.Kind `json:"kind"`
}

// Announced is the result of the announcement of a deadline.
type Announced struct {
	At          time.Time     `json:"at,omitzero"` // of the deadline; zero if the session has no deadline now
	IdleTimeout time.Duration `json:"idleTimeout,omitempty"`
	Done        bool          `json:"done,omitempty"` // it has its event; if false, the request is too early
}

// PendingCommand is a command that the session has not executed yet.
type PendingCommand struct {
	ID       string              `json:"id"`
	Kind     session.CommandKind `json:"kind"`
	Force    bool                `json:"force,omitempty"`
	PromptID string              `json:"promptId,omitempty"`
	RunID    string              `json:"runId,omitempty"`
	Reason   string              `json:"reason,omitempty"`
}

// Waiting has the pending commands and the first queued prompts of a session.
type Waiting struct {
	Commands    []PendingCommand       `json:"commands,omitempty"`
	Next        []session.QueuedPrompt `json:"prompts,omitempty"`
	Queued      int64                  `json:"queued,omitempty"` // the number of queued prompts
	IdleTimeout time.Duration          `json:"idleTimeout"`
}

// Reclaimed is the state of a session after its workflow has ended the attendance.
type Reclaimed struct {
	Waiting
	// Run is in progress, and the attendant keeps the session until it ends. Nil: the attendance
	// has ended.
	Run          *session.Processing `json:"run,omitempty"`
	LastActivity time.Time           `json:"lastActivity"`
}

// CommandEnding is the end of a command that no transition ends.
type CommandEnding struct {
	SessionID string                `json:"sessionId"`
	CommandID string                `json:"commandId"`
	Status    session.CommandStatus `json:"status"`
	Reason    string                `json:"reason,omitempty"`
}

// StopRequest stores a stop that no client asked for.
type StopRequest struct {
	SessionID string `json:"sessionId"`
	Reason    string `json:"reason"`
}

// SandboxRequest requests the sandbox of a generation.
type SandboxRequest struct {
	SessionID  string `json:"sessionId"`
	Generation int64  `json:"generation"`
	// Fresh requests a restore into a new sandbox with the stored transcripts, without the files of
	// the old one. The snapshot is kept for a while.
	Fresh bool `json:"fresh,omitempty"`
	// Next is the number of the transition that follows: once it is recorded, the session uses the sandbox. 0: it is unknown, because the
	// workflow is of an earlier release.
	Next int64 `json:"next,omitempty"`
	// Then is the transition that RestoreSandbox records when the sandbox is ready. Nil: the workflow records it.
	Then *session.Transition `json:"then,omitempty"`
	// Claim is the claim of a prompt that RestoreSandbox makes with that transition. Nil: the workflow
	// claims the next prompt.
	Claim *run.Proposal `json:"claim,omitempty"`
}

// SandboxReady is a sandbox whose runner answers.
type SandboxReady struct {
	// Generation is the requested one, or that of a running sandbox that a restore reuses.
	Generation int64     `json:"generation"`
	SandboxID  string    `json:"sandboxId"`
	Deadline   time.Time `json:"deadline,omitzero"` // the time at which the provider ends it
	// Since is the start of a reused sandbox.
	Since   time.Time        `json:"since,omitzero"`
	Receipt *receipt.Receipt `json:"receipt,omitempty"` // of a restore
	// Recorded is the time of the requested transition, if it has been recorded. If zero, the workflow records it.
	Recorded time.Time `json:"recorded,omitzero"`
	// Claimed is the run of the requested claim. Nil: the workflow claims the next prompt.
	Claimed *run.Verdict `json:"claimed,omitempty"`
}

// SandboxRef names the sandbox of a session.
type SandboxRef struct {
	SessionID  string `json:"sessionId"`
	Generation int64  `json:"generation"`
	SandboxID  string `json:"sandboxId"`
	Reason     string `json:"reason,omitempty"`
	// Transition is the number of the session's newest transition at the time of the request: once the session has moved on,
	// TerminateSandbox ends nothing. 0: it ends every sandbox, because the session is being stopped, or its workflow is of an
	// earlier release.
	Transition int64 `json:"transition,omitempty"`
}

// SaveRequest requests a bundle of a sandbox. The caller chooses its id, so that a repeated request
// makes one bundle.
type SaveRequest struct {
	SessionID  string `json:"sessionId"`
	Generation int64  `json:"generation"`
	SandboxID  string `json:"sandboxId"`
	BundleID   string `json:"bundleId"`
	// Checkpoint: the sandbox continues to work, and will be saved again.
	Checkpoint bool `json:"checkpoint,omitempty"`
	// Unsaved: save the sandbox only if the session has worked in it and no bundle covers that
	// work. A sandbox of an incomplete restore must not be saved. An error if an earlier generation
	// has unsaved work.
	Unsaved bool `json:"unsaved,omitempty"`
	// Release, if not empty, is the reason for which SaveBundle terminates the session's sandboxes once the bundle is
	// committed.
	Release string `json:"release,omitempty"`
	// Then is the transition that SaveBundle records once the sandboxes are terminated. Nil: the workflow records it.
	Then *session.Transition `json:"then,omitempty"`
}

// RevertRequest requests that the agent of an idle session is reverted to its state before a
// prompt.
type RevertRequest struct {
	SessionID  string `json:"sessionId"`
	Generation int64  `json:"generation"`
	SandboxID  string `json:"sandboxId"`
	PromptID   string `json:"promptId"`
}

// Saved describes the bundle that a session can wake from. BundleID is empty if the session has no
// such bundle.
type Saved struct {
	BundleID string `json:"bundleId,omitempty"`
	Verified bool   `json:"verified"`
	// Released: the session's sandboxes have been terminated too. If false, the workflow terminates them.
	Released bool `json:"released,omitempty"`
	// Recorded is the time of the requested transition, if it has been recorded. If zero, the workflow records it.
	Recorded time.Time `json:"recorded,omitzero"`
}

// Problem is the failure of a command of the session.
type Problem struct {
	SessionID string `json:"sessionId"`
	Code      string `json:"code"`
	Message   string `json:"message"`
}

// ClaimRequest claims a prompt for a run.
type ClaimRequest struct {
	SessionID  string `json:"sessionId"`
	PromptID   string `json:"promptId"`
	RunID      string `json:"runId"` // proposed
	Generation int64  `json:"generation"`
	// Allotted: the run may have the id that was allotted to its prompt. Workflows of earlier
	// releases expect the proposed id.
	Allotted bool `json:"allotted,omitempty"`
}

// TurnRequest requests the execution of a run.
type TurnRequest struct {
	// Dispatch is the number that the workflow was allotted for this request.
	Dispatch   int64  `json:"dispatch,omitempty"`
	SessionID  string `json:"sessionId"`
	RunID      string `json:"runId"`
	PromptID   string `json:"promptId"`
	Generation int64  `json:"generation"`
	SandboxID  string `json:"sandboxId"`
	// ClaimID is the claim whose run RunTurnWhenClaimed executes. The run, its prompt, generation and
	// sandbox, and the end of an attendance are then not known yet.
	ClaimID string `json:"claimId,omitempty"`
	// ParkAfter is the time after which the run is parked if it only waits for open questions; 0
	// means never.
	ParkAfter time.Duration `json:"parkAfter,omitempty"`
	// Look requests the commands and prompts that are pending after the run. They are read in the
	// transaction of its end.
	Look bool `json:"look,omitempty"`
	// Attend allows the attempt to attend the session after the run. Nil: it does not.
	Attend *Attend `json:"attend,omitempty"`
}

// Attend bounds an attendance: the attempt that has ended a run keeps its link and claims the prompts that follow by
// itself, until one of the bounds is reached or something other than a prompt waits.
type Attend struct {
	For        time.Duration `json:"for"`            // without a prompt
	Until      time.Time     `json:"until,omitzero"` // zero: no bound
	MaxPrompts int           `json:"prompts"`        // that it may claim
}

// TurnResult is the end of a run.
type TurnResult struct {
	Outcome   session.Outcome `json:"outcome"`
	Reason    string          `json:"reason,omitempty"`
	Usage     usage.Usage     `json:"usage"`
	LastFrame int64           `json:"lastFrame"`
	// Waiting lists the commands and prompts that are pending after the run. Nil if it was not
	// requested, an earlier attempt has ended the run, or the worker is of an earlier version.
	Waiting *Waiting `json:"waiting,omitempty"`
	// Parked is the run, if the attempt has parked it. The fields above are unset then.
	Parked *session.Processing `json:"parked,omitempty"`
	// Attended describes the runs that the attempt claimed after the requested one; the other
	// fields are those of its last run. Nil: none.
	Attended *Attended `json:"attended,omitempty"`
	// Reread: other runs may have followed; the workflow must read the session.
	Reread bool `json:"reread,omitempty"`
	// EndedAt is when the last run ended, if the attempt was allowed to attend.
	EndedAt time.Time `json:"endedAt,omitzero"`
}

// Attended describes the runs of an attendance.
type Attended struct {
	Runs []string `json:"runs"`
	// PromptIDs are the prompts of the runs. Workers of earlier versions do not report them.
	PromptIDs []string `json:"prompts,omitempty"`
	// Ordinal is the ordinal of the last prompt. Earlier ones were claimed or withdrawn.
	Ordinal int64 `json:"ordinal"`
}

// ContinueRequest gives a parked run to the sandbox of a generation.
type ContinueRequest struct {
	RunID      string `json:"runId"`
	Generation int64  `json:"generation"`
}

// Continuation is the result of a request to continue a parked run.
type Continuation struct {
	Granted  bool      `json:"granted,omitempty"`
	Ended    bool      `json:"over,omitempty"` // the run has ended
	Until    time.Time `json:"until,omitzero"` // otherwise, the expiry of an open question
	Dispatch int64     `json:"dispatch,omitempty"`
	Part     int64     `json:"part,omitempty"`
}

// SettleRequest ends a run that no worker can end.
type SettleRequest struct {
	// ReturnUntouched: if no attempt has ever attached, the prompt returns to its place in the queue
	// instead.
	ReturnUntouched bool `json:"returnUntouched,omitempty"`
	// Requeue: the prompt returns to its place in the queue with the end of the run, unless the run is to be aborted.
	Requeue bool            `json:"requeue,omitempty"`
	RunID   string          `json:"runId"`
	Outcome session.Outcome `json:"outcome"`
	Reason  string          `json:"reason"`
}

// Settled is the result of settling a run. A run that has ended keeps its outcome.
type Settled struct {
	Outcome session.Outcome `json:"outcome,omitempty"`
	// Returned: its prompt is queued again.
	Returned bool `json:"returned,omitempty"`
}

// PromptsRequest concerns every prompt of a session that has not ended.
type PromptsRequest struct {
	SessionID string `json:"sessionId"`
	Reason    string `json:"reason"`
}

// PromptRef names a prompt.
type PromptRef struct {
	SessionID string `json:"sessionId"`
	PromptID  string `json:"promptId"`
}

// AbortRequest interrupts the running turn of a run.
type AbortRequest struct {
	SessionID  string `json:"sessionId"`
	Agent      string `json:"agent"`
	RunID      string `json:"runId"`
	Generation int64  `json:"generation"`
	SandboxID  string `json:"sandboxId"`
	Part       int64  `json:"part,omitempty"` // of the run
}

// Reconciled counts the results of one reconciliation.
type Reconciled struct {
	Listed     int `json:"listed"`
	Reported   int `json:"reported"`   // sandboxes found dead, reported to their workflows
	Terminated int `json:"terminated"` // sandboxes without an owner
	Revived    int `json:"revived"`    // sessions whose workflow was not open
	Deleted    int `json:"deleted"`    // snapshots that no bundle needed
}
