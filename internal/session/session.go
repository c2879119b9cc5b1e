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

// Session is the stored and displayed state of a session. It is a projection of its workflow, which
// makes the decisions.
type Session struct {
	ID           string
	Status       State
	StatusReason string // why it is in this state; may be empty
	Agent        string
	Profile      string
	Title        string
	Workspace    *Workspace
	ParentID     string
	ForkedFrom   string // the session from which it was forked, at Fork
	Lazy         bool   // no sandbox before the first prompt or wake
	CreatedAt    time.Time
	LastActivity time.Time
	IdleTimeout  time.Duration
	Metadata     json.RawMessage // a JSON object, {} by default
	Options      Options
	Generation   int64 // increases with every sandbox of the session; 0 before the first
	TransitionNo int64 // number of the newest transition; 0 before the first
	Receipt      *receipt.Receipt
	Metrics      Metrics
	Queue        QueueCounts
	// QuestionsOpen counts the questions that wait for a person.
	QuestionsOpen int64
	Step          string        // reported step of a start; empty if there is none
	StartWait     *breaker.Wait // what its start waits for, because other starts keep failing; nil for nothing
	Loaded        bool          // the workflow is open
	Sandbox       *SandboxView
	// Head is the bundle that it restores from, HeadSuccess the newest one that does not end with a
	// failed turn. Only set by the store's SessionGet and SessionList; empty if there is none.
	Head, HeadSuccess string
	// Fork is where a fork began, Saves when bundles are saved; set together with Head.
	Fork    fork.Point
	Saves   checkpoint.Saves
	Pending []Command    // commands that were accepted and have not ended, oldest first
	Purge   *purge.Purge // only set by the store's SessionGet: all data of the session is being erased
	// Notify is only set by the store's SessionPatch: the workflow must be signalled.
	Notify bool
}

// Workspace is the initial content of the working directory of a new session.
type Workspace struct {
	RepoURL string `json:"repoUrl,omitempty"`
	Ref     string `json:"ref,omitempty"`
	Setup   string `json:"setup,omitempty"`
}

// Options configure the agent of a session.
type Options struct {
	Model string `json:"model,omitempty"`
	// Permissions is the default policy for calls of tools: allow (the default), ask or deny. A
	// profile may have exceptions by tool.
	Permissions permission.Policy `json:"permissions,omitempty"`
	// QuestionTimeout is how long a question to people waits for its answer; zero means
	// question.DefaultTimeout.
	QuestionTimeout Duration `json:"questionTimeout,omitzero"`
	// Checkpoint is when bundles are saved while the session is awake; empty for the installation's
	// policy.
	Checkpoint checkpoint.Policy `json:"checkpoint,omitempty"`
}

// Duration is a time span that is a Go duration string in JSON.
type Duration time.Duration

// MarshalText formats the duration like time.Duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText parses the duration with time.ParseDuration.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// Metrics are counted per session. ActiveSeconds is the time in the status running, with or without
// a running prompt.
type Metrics struct {
	ActiveSeconds float64 `json:"activeSeconds"`
	Messages      int64   `json:"messages"`
	ToolCalls     int64   `json:"toolCalls"`
	InputTokens   int64   `json:"inputTokens"`
	OutputTokens  int64   `json:"outputTokens"`
	// CostUSD is the sum of the costs that turns have reported; nil if turns have ended and none has reported a cost.
	CostUSD *float64 `json:"costUsd"`
}

// QueueCounts counts the prompts of a session that are unfinished, or need a person.
type QueueCounts struct {
	Queued     int64 `json:"queued"`
	Processing int64 `json:"processing"`
	// Unknown counts prompts that have ended and wait for a person to retry, resolve or dismiss
	// them.
	Unknown int64     `json:"unknown"`
	Hold    QueueHold `json:"-"`
}

// Transition is a change of a session's status, recorded once.
type Transition struct {
	SessionID  string
	No         int64 // 1, 2, …: contiguous per session
	From, To   State
	Event      Event
	Reason     string
	Generation int64
	Receipt    *receipt.Receipt // with transitions into running from restoring
	Command    string           // id of the command that requests it, which must still be pending; empty if none does
	At         time.Time
	// Since is when the session entered From, if its workflow knows it.
	Since time.Time `json:",omitzero"`
	// Cause of a transition into error.
	Cause ErrorCause `json:",omitempty"`
}

// ErrorCause distinguishes transient from permanent errors. Errors recorded by earlier versions have
// none.
type ErrorCause string

// CauseRefused is the cause of an error that would occur again until a person fixes its reason.
const CauseRefused ErrorCause = "refused"
