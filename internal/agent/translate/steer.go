package translate

import (
	"slices"

	"github.com/overwinter-dev/overwinter/internal/agent"
)

// Expected are the prompts added to a running turn, as a part of a translator's state.
type Expected []ExpectedPrompt

// ExpectedPrompt is a prompt added to a running turn.
type ExpectedPrompt struct {
	ID       string `json:"id"` // the agent's id
	PromptID string `json:"promptId"`
	Author   string `json:"author,omitempty"`
	Settled  bool   `json:"settled,omitempty"` // the agent has accepted or declined it
}

// Add adds a prompt under the agent's id, unless it was added before, and reports whether it is
// unsettled.
func (e *Expected) Add(id string, s agent.Steered) (waits bool) {
	if p := e.Find(id); p != nil {
		return !p.Settled
	}
	*e = append(*e, ExpectedPrompt{ID: id, PromptID: s.PromptID, Author: s.Author})
	return true
}

// Find returns the prompt with the agent's id, or nil.
func (e *Expected) Find(id string) *ExpectedPrompt {
	i := slices.IndexFunc(*e, func(p ExpectedPrompt) bool { return p.ID == id })
	if i < 0 {
		return nil
	}
	return &(*e)[i]
}

// Wait reports whether any prompt is unsettled, so that the turn must not end.
func (e *Expected) Wait() bool {
	return slices.ContainsFunc(*e, func(p ExpectedPrompt) bool { return !p.Settled })
}

// Settle adds to Out whether the agent has accepted or declined a prompt, the first time.
func (t *Turn) Settle(e *Expected, id string, taken bool) {
	if p := e.Find(id); p != nil && !p.Settled {
		p.Settled = true
		t.Out.Steered = append(t.Out.Steered, agent.SteerVerdict{PromptID: p.PromptID, Taken: taken})
	}
}
