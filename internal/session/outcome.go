package session

// Outcome is how a run ended.
type Outcome string

// The outcomes of a run; they are the final statuses of its prompt.
const (
	OutcomeCompleted Outcome = "completed"
	OutcomeFailed    Outcome = "failed"
	OutcomeCancelled Outcome = "cancelled"
	OutcomeUnknown   Outcome = "unknown"
)

// PromptStatus returns the status of a prompt whose run has this outcome.
func (o Outcome) PromptStatus() PromptStatus { return PromptStatus(o) }
