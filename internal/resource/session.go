package resource

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/purge"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// SessionJSON is the JSON of a session.
type SessionJSON struct {
	ID           string             `json:"id"`
	Status       session.State      `json:"status"`
	StatusReason string             `json:"statusReason,omitempty"`
	Agent        string             `json:"agent"`
	Profile      string             `json:"profile,omitempty"`
	Title        string             `json:"title,omitempty"`
	Workspace    *session.Workspace `json:"workspace,omitempty"`
	ParentID     string             `json:"parentId,omitempty"`
	ForkedFrom   *ForkedFromJSON    `json:"forkedFrom,omitempty"`
	CreatedAt    Time               `json:"createdAt"`
	LastActivity Time               `json:"lastActivityAt"`
	IdleTimeout  Duration           `json:"idleTimeout"`
	// IdleTimeoutSeconds is IdleTimeout as a number.
	IdleTimeoutSeconds float64 `json:"idleTimeoutSeconds"`
	// SleepsAt is the time at which it hibernates unless something happens first, ExpiresAt the
	// time at which it leaves its sandbox because of the provider's limit, and NextCheckpointAt the
	// time after which the end of a turn saves a bundle.
	SleepsAt         *Time           `json:"sleepsAt"`
	ExpiresAt        *Time           `json:"expiresAt"`
	NextCheckpointAt *Time           `json:"nextCheckpointAt"`
	Metadata         json.RawMessage `json:"metadata"`
	Options          session.Options `json:"options"`
	Generation       int64           `json:"generation"`
	Receipt          *ReceiptJSON    `json:"receipt,omitempty"`
	// Head is the bundle that it wakes from, HeadSuccess the newest one that does not end with a turn that failed.
	Head        string          `json:"head,omitempty"`
	HeadSuccess string          `json:"headSuccess,omitempty"`
	Metrics     session.Metrics `json:"metrics"`
	Queue       QueueJSON       `json:"queue"`
	Doing       DoingJSON       `json:"doing"`
	Questions   QuestionCounts  `json:"questions"`
	// PendingCommands are accepted commands that have not ended, oldest first.
	PendingCommands []CommandJSON `json:"pendingCommands"`
	Runtime         RuntimeJSON   `json:"runtime"`
	Purge           *PurgeJSON    `json:"purge,omitempty"`
	// Warnings are only in the response to the creation.
	Warnings []WarningJSON `json:"warnings,omitempty"`
}

// WarningJSON is a problem that may prevent a successful request from having its effect.
type WarningJSON struct {
	Code   string `json:"code"`
	Field  string `json:"field"` // of the request
	Detail string `json:"detail"`
}

// DoingJSON is the current activity of a session.
type DoingJSON struct {
	State session.ActivityState `json:"state"`
	Step  string                `json:"step,omitempty"`
	Text  string                `json:"text"`
	Until *Time                 `json:"until,omitempty"`
}

// QuestionCounts has the numbers of a session's questions.
type QuestionCounts struct {
	Open int64 `json:"open"`
}

// PurgeJSON is the erasure of a session.
type PurgeJSON struct {
	State       purge.State `json:"state"`
	RequestedAt Time        `json:"requestedAt"`
}

// Purge converts p; nil stays nil.
func Purge(p *purge.Purge) *PurgeJSON {
	if p == nil {
		return nil
	}
	return &PurgeJSON{State: p.State, RequestedAt: Time(p.RequestedAt)}
}

// RuntimeJSON describes the workflow and the sandbox of a session.
type RuntimeJSON struct {
	IsLoaded bool         `json:"isLoaded"` // its workflow is open
	Sandbox  *SandboxJSON `json:"sandbox"`  // null when there is none
}

// SandboxJSON is the sandbox of a session.
type SandboxJSON struct {
	SandboxID       string                `json:"sandboxId"`
	Status          session.SandboxStatus `json:"status"`
	RestartCount    int64                 `json:"restartCount"`
	LastHealthCheck Time                  `json:"lastHealthCheck"`
}

// ReceiptJSON is the result of a restore. Missing is [] if nothing is missing.
type ReceiptJSON struct {
	Kind    receipt.Kind `json:"kind"`
	Missing []string     `json:"missing"`
	// Unchecked describes the parts that were not compared.
	Unchecked []string `json:"unchecked,omitempty"`
	Moved     string   `json:"moved,omitempty"` // the origin of an imported session
	// HandedFrom is the agent whose memory is missing, because the session was forked with another
	// one.
	HandedFrom string `json:"handedFrom,omitempty"`
}

// Session converts s.
func Session(s session.Session) SessionJSON {
	metadata := s.Metadata
	if len(metadata) == 0 {
		metadata = json.RawMessage(`{}`)
	}
	return SessionJSON{
		ID: s.ID, Status: s.Status, StatusReason: s.StatusReason, Agent: s.Agent, Profile: s.Profile,
		Title: s.Title, Workspace: s.Workspace, ParentID: s.ParentID, ForkedFrom: forkedFrom(s),
		CreatedAt: Time(s.CreatedAt), LastActivity: Time(s.LastActivity), IdleTimeout: Duration(s.IdleTimeout),
		IdleTimeoutSeconds: s.IdleTimeout.Seconds(), SleepsAt: OptionalTime(s.SleepsAt()), ExpiresAt: OptionalTime(s.ExpiresAt()), NextCheckpointAt: OptionalTime(s.CheckpointAt()), Doing: doing(s.Activity()), Questions: QuestionCounts{Open: s.QuestionsOpen},
		Metadata: metadata, Options: s.Options, Generation: s.Generation, Receipt: Receipt(s.Receipt), Head: s.Head, HeadSuccess: s.HeadSuccess,
		Metrics: s.Metrics, Queue: QueueJSON{s.Queue, Hold(s.Queue.Hold)},
		PendingCommands: Commands(s.Pending), Runtime: RuntimeJSON{IsLoaded: s.Loaded, Sandbox: Sandbox(s.Sandbox)},
		Purge: Purge(s.Purge),
	}
}

func doing(a session.Activity) DoingJSON {
	return DoingJSON{State: a.State, Step: a.Step, Text: a.Text, Until: OptionalTime(a.Until)}
}

// ForkedFromJSON is the starting point of a fork.
type ForkedFromJSON struct {
	SessionID string `json:"sessionId"`
	BundleID  string `json:"bundleId,omitempty"`
	PromptID  string `json:"promptId,omitempty"`
	Agent     string `json:"agent,omitempty"` // if it differs
}

func forkedFrom(s session.Session) *ForkedFromJSON {
	if s.ForkedFrom == "" {
		return nil
	}
	return &ForkedFromJSON{SessionID: s.ForkedFrom, BundleID: s.Fork.BundleID, PromptID: s.Fork.PromptID, Agent: s.Fork.HandedFrom}
}

// Sessions converts a list; the result is never nil, so that it is [] in JSON.
func Sessions(sessions []session.Session) []SessionJSON {
	out := make([]SessionJSON, len(sessions))
	for i, s := range sessions {
		out[i] = Session(s)
	}
	return out
}

// Sandbox converts v; nil stays nil.
func Sandbox(v *session.SandboxView) *SandboxJSON {
	if v == nil {
		return nil
	}
	return &SandboxJSON{
		SandboxID: v.SandboxID, Status: v.Status,
		RestartCount: v.RestartCount, LastHealthCheck: Time(v.LastHealthCheck),
	}
}

// Receipt converts r; nil stays nil.
func Receipt(r *receipt.Receipt) *ReceiptJSON {
	if r == nil {
		return nil
	}
	missing := r.Missing
	if missing == nil {
		missing = []string{}
	}
	return &ReceiptJSON{Kind: r.Kind, Missing: missing, Unchecked: r.Unchecked, Moved: r.Moved, HandedFrom: r.HandedFrom}
}
