package run

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/usage"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// Dispatch orders the attempts at a run. A workflow is allotted a new number each time it gives the
// run to a worker; Attempt counts the engine's attempts under that number.
type Dispatch struct {
	No      int64
	Attempt int64
}

// After reports whether d was made later than other.
func (d Dispatch) After(other Dispatch) bool {
	if d.No != other.No {
		return d.No > other.No
	}
	return d.Attempt > other.Attempt
}

// Run is one claim of a prompt, by an agent in one sandbox. It belongs to the generation of the sandbox it was
// dispatched to, and no other generation can finish it.
type Run struct {
	ID         string
	SessionID  string
	PromptID   string
	Generation int64
	Attempt    int64    // 1, 2, …: how many workers have attached to it
	Held       Dispatch // of the attempt that attached last
	Token      string   // of the newest attempt; appends with an older one are fenced off
	LastFrame  int64    // newest frame whose events are committed; -1 before the first
	// Part counts the sandboxes in which the run has continued after its session slept with a question of it open. What
	// its agent prints in this one is numbered from FrameBase on.
	Part       int64
	FrameBase  int64
	Parked     bool   // its session sleeps, or is to, until a question of it is answered
	Translator []byte // the translator's state after LastFrame
	Outcome    session.Outcome
	Reason     string
	Usage      usage.Usage
	StartedAt  time.Time
	EndedAt    time.Time
	// Look has the commands and prompts that are pending after the run, if its ending asked for them.
	Look *session.Look
	// Attended: the attempt that has ended the run may claim the session's next prompt.
	Attended bool
	// Ended is set by the call that has ended the run, and by no other.
	Ended *Ended
}

// Verdict answers the claim of a prompt.
type Verdict struct {
	// Granted: the run has the prompt, now or since an earlier call with its id.
	Granted bool
	// RunID is the id of a run that was granted, which may be another one than the claim proposed.
	RunID string `json:",omitempty"`
	// Dispatch is the number to give a granted run to a worker with.
	Dispatch int64
	// Status of the prompt, and who has it where it was not granted.
	Status session.PromptStatus
	HeldBy string
	// Earlier is a waiting prompt of the session that comes first; nil if there is none. Signals
	// may arrive out of order, or not at all, and prompts are promoted: the rows decide.
	Earlier *session.QueuedPrompt
	// Held: no prompt starts, because the queue is held.
	Held bool `json:",omitzero"`
	// Generation that the run in HeldBy was dispatched to.
	Generation int64
	// OnUnknown is the prompt's policy for a lost outcome.
	OnUnknown session.OnUnknown
}

// Start is the state that an attempt at a run begins with.
type Start struct {
	Run     Run
	Prompt  session.Prompt
	Agent   string
	Options session.Options
	// Profile that the session has, as ID@VERSION, and what is in it; empty and nil for none.
	ProfileRef string
	Profile    *profile.Spec
	SandboxID  string
	// Generation of the session now; the run may belong to an older one.
	Generation int64
	// Suspect: the attempt before was lost at the position where the run still is.
	Suspect bool
	// Quarantine: so many were lost there that no further attempt reads frames. See [Losses].
	Quarantine bool
	// Resume: the session has had a turn before this one.
	Resume bool
	// Receipt is that of the restore of the run's sandbox, if something did not come back and no agent has had a turn in
	// it yet; nil otherwise.
	Receipt *receipt.Receipt
	// MemoryID is the session under whose name the agent keeps its memory: of a fork the one that its files come from.
	MemoryID string
	// HandOff is the conversation that another agent had before the session was forked with this one, if this one has completed no
	// turn since; nil otherwise.
	HandOff *fork.HandOff
	// Transcripts says how much of each native file is stored already.
	Transcripts []transcript.Position
	// Files is the position of the newest stored change of the workspace.
	Files workspacefile.Position
}

// Ending is the end of a run as its worker, or the workflow in its place, saw it.
type Ending struct {
	RunID string
	// Token of the attempt; empty when the workflow settles a run that no worker can end.
	Token string
	// Read: every frame of the turn was read, so that it is known which prompts the agent has taken in it. It is so with a token.
	Read    bool
	Outcome session.Outcome
	Reason  string
	Usage   usage.Usage
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

// Ended has the values of an ended run that are logged and measured.
type Ended struct {
	Agent string
	// QueueWait is the time from the acceptance of the prompt to its claim; negative if the prompt is queued again.
	QueueWait time.Duration
	RequestID string // of the request that accepted the prompt; empty if it is not known
}
