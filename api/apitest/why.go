package apitest

import (
	"context"
	"time"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/why"
)

// WhyFacts implements api.Store. It only returns the session and its prompts.
func (m *Store) WhyFacts(_ context.Context, id string, of why.Subject, which string) (why.Facts, error) {
	leave, err := m.enter("WhyFacts")
	if err != nil {
		return why.Facts{}, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return why.Facts{}, err
	}
	facts := why.Facts{Session: r.view(), Now: time.Now()}
	if of != why.Prompt {
		return facts, nil
	}
	for _, p := range r.Prompts {
		if which == "" || p.ID == which {
			found := p
			facts.Prompt = &found
		}
		if p.Status == session.PromptProcessing {
			facts.Processing = p.ID
		}
	}
	if facts.Prompt == nil && which != "" {
		return facts, failure.Errorf(failure.NoPrompt, "there is no prompt %s in this session", which)
	}
	return facts, nil
}
