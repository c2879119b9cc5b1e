package translate

import (
	"slices"

	"github.com/overwinter-dev/overwinter/internal/agent"
)

// Expected are the prompts that a running turn is given, as a part of a translator's state.
type Expected []ExpectedPrompt

// ExpectedPrompt is one of them.
type ExpectedPrompt struct {
	ID       string `json:"id"` // the agent's
	PromptID string `json:"promptId"`
	Author   string `json:"author,omitempty"`
	Settled  bool   `json:"settled,omitempty"` // the agent has taken or declined it
}

// Add expects a prompt that the agent knows by an id, unless it is expected already, and reports whether it is not settled.
func (e *Expected) Add(id string, s agent.Steered) (waits bool) {
	if p := e.Find(id); p != nil {
		return !p.Settled
	}
	*e = append(*e, ExpectedPrompt{ID: id, PromptID: s.PromptID, Author: s.Author})
	return true
}

// Find returns the prompt with an id of the agent; nil if there is none.
func (e *Expected) Find(id string) *ExpectedPrompt {
	i := slices.IndexFunc(*e, func(p ExpectedPrompt) bool { return p.ID == id })
	if i < 0 {
		return nil
	}
	return &(*e)[i]
}

// Wait reports whether a prompt is not settled: the turn does not end.
func (e *Expected) Wait() bool {
	return slices.ContainsFunc(*e, func(p ExpectedPrompt) bool { return !p.Settled })
}

// Settle adds to Out what the agent has done with a prompt, the first time.
func (t *Turn) Settle(e *Expected, id string, taken bool) {
	if p := e.Find(id); p != nil && !p.Settled {
		p.Settled = true
		t.Out.Steered = append(t.Out.Steered, agent.SteerVerdict{PromptID: p.PromptID, Taken: taken})
	}
}
