package session

import (
	"encoding/json"
	"time"

	"github.com/overwinter-dev/overwinter/internal/breaker"
	"github.com/overwinter-dev/overwinter/internal/checkpoint"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/purge"
	"github.com/overwinter-dev/overwinter/internal/receipt"
)

// Session is one session as it is stored and shown: the projection of its
// workflow, never the decision.
type Session struct {
	ID           string
	Status       State
	StatusReason string // why it is in this state; empty if that needs no reason
	Agent        string
	Profile      string
	Title        string
	Workspace    *Workspace
	ParentID     string
	ForkedFrom   string // the session that it was forked from, at Fork
	Lazy         bool   // no sandbox before the first prompt or wake
	CreatedAt    time.Time
	LastActivity time.Time
	IdleTimeout  time.Duration
	Metadata     json.RawMessage // a JSON object, {} when none was given
	Options      Options
	Generation   int64 // rises with every sandbox made for the session; 0 before the first
	TransitionNo int64 // number of the newest transition; 0 before the first
	Receipt      *receipt.Receipt
	Metrics      Metrics
	Queue        QueueCounts
	// QuestionsOpen counts the questions that wait for a person.
	QuestionsOpen int64
	Step          string        // of a start that has been reported; empty if none is
	StartWait     *breaker.Wait // what its start waits for, because others keep failing; nil for nothing
	Loaded        bool          // the workflow is open
	Sandbox       *SandboxView
	// Head is the bundle that it wakes from, HeadSuccess the newest one that does not end with a turn that failed. Set by
	// the store's SessionGet and SessionList alone; empty where there is none.
	Head, HeadSuccess string
	// Fork is where a fork began, Saves when bundles are saved; set where Head is.
	Fork    fork.Point
	Saves   checkpoint.Saves
	Pending []Command    // commands that were accepted and have not ended, oldest first
	Purge   *purge.Purge // set by the store's SessionGet alone: everything of the session is being erased
	// Notify is set by the store's SessionPatch alone: the workflow is to be signalled.
	Notify bool
}

// Workspace is the initial content of the working directory of a new session.
type Workspace struct {
	RepoURL string `json:"repoUrl,omitempty"`
	Ref     string `json:"ref,omitempty"`
	Setup   string `json:"setup,omitempty"`
}

// Options are the choices of a session that its agent reads.
type Options struct {
	Model string `json:"model,omitempty"`
	// Permissions is the default policy for calls of tools: allow (the default), ask or deny. A
	// profile may have exceptions by tool.
	Permissions permission.Policy `json:"permissions,omitempty"`
	// QuestionTimeout is how long a question to people waits for its answer; zero means
	// question.DefaultTimeout.
	QuestionTimeout Duration `json:"questionTimeout,omitzero"`
	// Checkpoint says when a bundle is saved while the session is awake; empty for the installation's policy.
	Checkpoint checkpoint.Policy `json:"checkpoint,omitempty"`
}

// Duration is a time span that is a Go duration string in JSON.
type Duration time.Duration

// MarshalText writes it as time.Duration prints it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration does.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// Metrics are counted per session. ActiveSeconds is the time with a sandbox that serves prompts, whether one runs or not.
type Metrics struct {
	ActiveSeconds float64 `json:"activeSeconds"`
	Messages      int64   `json:"messages"`
	ToolCalls     int64   `json:"toolCalls"`
	InputTokens   int64   `json:"inputTokens"`
	OutputTokens  int64   `json:"outputTokens"`
	// CostUSD is the sum of the costs that turns have reported; nil if turns have ended and none has reported a cost.
	CostUSD *float64 `json:"costUsd"`
}

// QueueCounts are the prompts of a session that are not over, or need a person.
type QueueCounts struct {
	Queued     int64 `json:"queued"`
	Processing int64 `json:"processing"`
	// Unknown are over, and wait for a person to retry, resolve or dismiss them.
	Unknown int64     `json:"unknown"`
	Hold    QueueHold `json:"-"`
}

// Transition is one step of a session's life, recorded once.
type Transition struct {
	SessionID  string
	No         int64 // 1, 2, …: contiguous per session
	From, To   State
	Event      Event
	Reason     string
	Generation int64
	Receipt    *receipt.Receipt // with transitions into running from restoring
	Command    string           // id of the command that asks for it, which must still be pending; empty when none does
	At         time.Time
	// Since is when the session entered From, if its workflow knows that.
	Since time.Time `json:",omitzero"`
	// Cause of a transition into error.
	Cause ErrorCause `json:",omitempty"`
}

// ErrorCause says whether the reason of an error may pass. Errors that earlier versions recorded have none.
type ErrorCause string

// CauseRefused is the cause of an error that would occur again until a person fixes its reason.
const CauseRefused ErrorCause = "refused"
