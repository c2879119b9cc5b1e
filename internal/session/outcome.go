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

// PromptStatus is the status that a prompt takes from the outcome of its run.
func (o Outcome) PromptStatus() PromptStatus { return PromptStatus(o) }
