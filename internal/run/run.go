package run

import (
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/usage"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// Dispatch orders the attempts at a run. A workflow gets a new number each time it gives the run to
// a worker; Attempt is Temporal's attempt with that number.
type Dispatch struct {
	No      int64
	Attempt int64
}

// After reports whether d is later than other.
func (d Dispatch) After(other Dispatch) bool {
	if d.No != other.No {
		return d.No > other.No
	}
	return d.Attempt > other.Attempt
}

// Run is one claim of a prompt by an agent in one sandbox. It belongs to the generation of that
// sandbox, and no other generation can end it.
type Run struct {
	ID         string
	SessionID  string
	PromptID   string
	Generation int64
	Attempt    int64    // number of workers that have attached
	Held       Dispatch // dispatch of the newest attempt
	Token      string   // token of the newest attempt; appends with an older one are fenced
	LastFrame  int64    // newest frame whose events are committed; -1 before the first
	// Part counts the sandboxes in which the run has continued after its session slept with an open
	// question. The frames of the current part are numbered from FrameBase.
	Part       int64
	FrameBase  int64
	Parked     bool   // its session sleeps, or is about to, until a question of the run is answered
	Translator []byte // the translator's state after LastFrame
	Outcome    session.Outcome
	Reason     string
	Usage      usage.Usage
	StartedAt  time.Time
	EndedAt    time.Time
	// Look has the commands and prompts that are pending after the run, if its ending asked for them.
	Look *session.Look
	// Attended means that the attempt that has ended the run may claim the session's next prompt.
	Attended bool
	// Ended is only set by the call that has ended the run.
	Ended *Ended
}

// Proposal proposes a claim of a prompt. The zero value proposes none.
type Proposal struct {
	PromptID string `json:"promptId"`
	ID       string `json:"id"` // of the claim; the id of its run is allotted to the prompt
}

// Located is a claimed run and the sandbox in which it is executed.
type Located struct {
	RunID      string
	PromptID   string
	Dispatch   int64 // the last number with which it was given to a worker
	Generation int64
	SandboxID  string
	Since      time.Time // when the life of the sandbox began
	Deadline   time.Time // when the provider ends the sandbox; zero if that is not known
	OnUnknown  session.OnUnknown
}

// Verdict is the result of a claim of a prompt.
type Verdict struct {
	// Granted means that the run has the prompt, now or since an earlier call with its id.
	Granted bool
	// RunID is the id of the granted run, which may differ from the proposed one.
	RunID string `json:",omitempty"`
	// Dispatch is the number with which a granted run is given to a worker.
	Dispatch int64
	// Status is the status of the prompt; HeldBy is its run if the claim was not granted.
	Status session.PromptStatus
	HeldBy string
	// Earlier is a queued prompt of the session that precedes this one; nil if there is none.
	// Signals may be lost or arrive out of order, and prompts are promoted: the rows decide.
	Earlier *session.QueuedPrompt
	// Held means that no prompt starts, because the queue is held.
	Held bool `json:",omitzero"`
	// Generation is the one to which the run in HeldBy was dispatched.
	Generation int64
	// OnUnknown is the prompt's policy for an unknown outcome.
	OnUnknown session.OnUnknown
}

// Start is the state with which an attempt at a run begins.
type Start struct {
	Run     Run
	Prompt  session.Prompt
	Agent   string
	Options session.Options
	// ProfileRef is the session's profile as ID@VERSION, and Profile its content; empty and nil for
	// none.
	ProfileRef string
	Profile    *profile.Spec
	SandboxID  string
	// Generation is the current one of the session; the run may belong to an older one.
	Generation int64
	// Suspect means that the previous attempt was lost at the run's current position.
	Suspect bool
	// Quarantine means that so many were lost there that no further attempt reads frames. See
	// [Losses].
	Quarantine bool
	// Resume means that the session has had an earlier turn.
	Resume bool
	// Receipt is the receipt of the restore of the run's sandbox, if the restore was incomplete and
	// the agent has had no turn in that sandbox yet; nil otherwise.
	Receipt *receipt.Receipt
	// MemoryID is the session whose id the agent uses for its memory: for a fork, the session from
	// which its files come.
	MemoryID string
	// HandOff is the conversation of another agent before the session was forked with the current
	// one, if that has not completed a turn yet; nil otherwise.
	HandOff *fork.HandOff
	// Transcripts contains how much of each native file is already stored.
	Transcripts []transcript.Position
	// Files is the position of the newest stored change of the workspace.
	Files workspacefile.Position
	// SecretsMark is the mark of the stored secrets, which was read with the start.
	SecretsMark SecretsMark
}

// SecretsMark is a mark of the stored secrets, see [secret.WithMark].
type SecretsMark struct {
	Value string
	At    time.Time // before it was read; zero if it is unknown
}

// Ending is the end of a run, as observed by its worker, or by the workflow instead.
type Ending struct {
	RunID string
	// Token is that of the attempt; empty if the workflow ends a run that no worker can end.
	Token string
	// Last is the append of the turn's last frames, if they are not stored yet: RunEnd stores them as
	// Log.Append does, in its transaction, with the translator's state left out. MayBeLast says which
	// appends it may be. It requires the token. Nil for none.
	Last *eventlog.Append
	// Segments are the end of the turn's transcripts. They are stored together with the outcome, as
	// TranscriptAppend stores them, unless the token is refused.
	Segments []transcript.Segment
	// Read means that every frame of the turn was read, so that it is known which prompts the agent
	// has accepted during the turn. It is implied by a token.
	Read    bool
	Outcome session.Outcome
	Reason  string
	Usage   usage.Usage
	Model   string
	// Requeue returns the prompt to its place in the queue instead of giving it the outcome. If a
	// pending abort names the run, the run and its prompt end as cancelled.
	Requeue bool
	// RecheckFor is the workflow run that reads the pending work together with the end of the run;
	// empty for none. It is ignored for a run that has already ended, or whose prompt is requeued.
	RecheckFor string
	// Attend is the token of the attempt that requests to attend the session, which means to claim
	// the next prompt itself. It requires RecheckFor, and is granted only if nothing but a prompt may
	// follow. Empty for none.
	Attend string
}

// MayBeLast reports whether an append may be the last one of an Ending: it has neither text, which
// would have to be in the log before open blocks are settled, nor questions, which other statements
// close.
func MayBeLast(a eventlog.Append) bool {
	isText := func(d eventlog.Draft) bool { return d.Type == string(conversation.EventTextDelta) }
	return len(a.Questions)+len(a.Resolved) == 0 && !slices.ContainsFunc(a.Events, isText)
}

// Ended contains the values of an ended run that are logged and measured.
type Ended struct {
	Agent string
	// QueueWait is the time from the submit of the prompt to its claim; negative if the prompt is
	// queued again.
	QueueWait time.Duration
	RequestID string // id of the request that submitted the prompt; empty if unknown
}
