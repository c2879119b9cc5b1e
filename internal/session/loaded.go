package session

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// Loaded is what a workflow takes up when it starts: the session as Postgres
// has it, with everything that is under way.
type Loaded struct {
	Session
	ErrorCause   ErrorCause     // of the state error
	Waiting      []QueuedPrompt // queued prompts by ordinal
	Processing   *Processing    // the prompt that a run has; nil when none
	Head         *BundleRef     // the bundle to wake from; nil when none was ever made
	SandboxID    string         // of Generation; empty when none is recorded
	SandboxSince time.Time      // when that sandbox's life began
	Deadline     time.Time      // end of that sandbox's life at the provider; zero when there is none
}

// Processing is a prompt in the hands of a run.
type Processing struct {
	PromptID   string
	Ordinal    int64
	RunID      string
	Generation int64 // of the sandbox that the run was dispatched to
	// Dispatch is the number to give the run to a worker with.
	Dispatch  int64
	OnUnknown OnUnknown
}

// BundleRef names a bundle and where its files are.
type BundleRef struct {
	ID         string
	SnapshotID string
}

// RunVerdict answers the claim of a prompt.
type RunVerdict struct {
	// Granted: the run has the prompt, now or since an earlier call with its id.
	Granted bool
	// Dispatch is the number to give a granted run to a worker with.
	Dispatch int64
	// Status of the prompt, and who has it where it was not granted.
	Status PromptStatus
	HeldBy string
	// Earlier is a waiting prompt of the session that comes first; nil if there is none. Signals
	// may arrive out of order, or not at all: the rows decide.
	Earlier *QueuedPrompt
	// Generation that the run in HeldBy was dispatched to.
	Generation int64
	// OnUnknown is the prompt's policy for a lost outcome.
	OnUnknown OnUnknown
}

// RunStart is what a worker needs to carry on a run.
type RunStart struct {
	Run     Run
	Prompt  Prompt
	Agent   string
	Options Options
	// Profile that the session has, as ID@VERSION, and what is in it; empty and nil for none.
	ProfileRef string
	Profile    *profile.Spec
	SandboxID  string
	// Generation of the session now; the run may belong to an older one.
	Generation int64
	// Suspect: the attempt before was lost at the position where the run still is.
	Suspect bool
	// Quarantine: so many were lost there that no further attempt reads frames. See Losses.
	Quarantine bool
	// Resume: the session has had a turn before this one.
	Resume bool
	// Transcripts says how much of each native file is stored already.
	Transcripts []transcript.Position
	// Files says how much of what happened in the workspace is stored.
	Files workspacefile.Position
}

// RunEnding is the end of a run as its worker, or the workflow in its place, saw it.
type RunEnding struct {
	RunID string
	// Token of the attempt; empty when the workflow settles a run that no worker can end.
	Token   string
	Outcome Outcome
	Reason  string
	Usage   Usage
	Model   string
	// Requeue: the prompt returns to its place in the queue instead of taking the outcome. A run that a pending abort
	// names ends cancelled, and its prompt with it.
	Requeue bool
	// LookFor is the workflow run that reads with the end of the run what waits for it next; empty for none. A run that
	// is over, or whose prompt returns to the queue, is ended without.
	LookFor string
	// Attend is the token of the attempt that asks to attend the session: to claim the next prompt by itself. It is
	// granted to an attempt that looks, and only if nothing but a prompt may come next. Empty for none.
	Attend string
}

// Claim asks for the next prompt of a session on behalf of its attendant.
type Claim struct {
	SessionID  string
	Attendant  string // the token that the attendance was granted to
	Generation int64  // that the attendant has a sandbox of
	RunID      string // of the run that is to have the prompt; the same again claims nothing more
	Token      string // of the run's first attempt, which is the attendant's
	Attempt    int64  // of the engine at the attendant's activity
}

// Claimed is what a claim of an attendant came to.
type Claimed struct {
	// Attended: the attendance continues. Otherwise the workflow has taken the session back, or is to have it back because
	// something other than a prompt waits.
	Attended bool
	Start    *RunStart // of the prompt that was claimed; nil if none waits
}

// TakenBack is what a workflow reads that takes its session back from an attendant.
type TakenBack struct {
	Look
	// Run is in progress, and the attendant keeps the session until it ends. Nil: the session has no attendant any more.
	Run          *Processing
	LastActivity time.Time
}

// SandboxRow is one sandbox that was asked for and has not been seen to end.
type SandboxRow struct {
	SessionID  string
	Generation int64
	SandboxID  string        // empty while its creation is under way
	ImageID    string        // what it starts from; of SandboxesOpen only
	Status     State         // of the session
	Health     SandboxStatus // as it was seen last
	Current    bool          // it is the session's newest generation
	ReservedAt time.Time
	ReadyAt    time.Time // zero until its runner answered
	Deadline   time.Time // when the provider ends it; zero while its creation is under way
}

// UnsavedSandbox is a sandbox with work that no bundle covers.
type UnsavedSandbox struct {
	SandboxRow
	Waited time.Duration // how long the session has been restoring
}

// UnclaimedWork is a session that has work which no run has claimed.
type UnclaimedWork struct {
	SessionID string
	PromptID  string // empty when the session itself has not been taken up
	Ordinal   int64
}

// Attended is a loaded session that has something to do.
type Attended struct {
	SessionID string
	RunID     string // an open run that has been silent lately; empty for none
	Status    State
	// WorkflowRun is the run of the workflow that opened the session last; empty if one of an earlier version did.
	WorkflowRun string
}
