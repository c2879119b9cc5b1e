package session

import "time"

// Outcome is how a run ended.
type Outcome string

// The outcomes of a run; they are the final statuses of its prompt.
const (
	OutcomeCompleted Outcome = "completed"
	OutcomeFailed    Outcome = "failed"
	OutcomeCancelled Outcome = "cancelled"
	OutcomeUnknown   Outcome = "unknown"
)

// PromptStatus is the status that a prompt takes from the outcome of its run.
func (o Outcome) PromptStatus() PromptStatus { return PromptStatus(o) }

// Usage is what a turn consumed.
type Usage struct {
	InputTokens  int64   `json:"inputTokens"`
	OutputTokens int64   `json:"outputTokens"`
	CostUSD      float64 `json:"costUsd"`
	ToolCalls    int64   `json:"toolCalls"`
}

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

// Run is one attempt of an agent at one prompt. It belongs to the generation of the sandbox it was
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
	Translator []byte   // the translator's state after LastFrame
	Outcome    Outcome
	Reason     string
	Usage      Usage
	StartedAt  time.Time
	EndedAt    time.Time
	// Look is what waits after the run, where its end was asked for that.
	Look *Look
	// Attended: the attempt that has ended the run may claim the session's next prompt.
	Attended bool
}
