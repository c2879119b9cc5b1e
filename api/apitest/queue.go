package apitest

import (
	"context"
	"time"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// PromptReplace implements api.Store.
func (m *Store) PromptReplace(_ context.Context, id, promptID, content string) (session.Prompt, error) {
	return m.changeQueued("PromptReplace", id, promptID, func(p *session.Prompt) { p.Content = content })
}

// PromptPromote implements api.Store.
func (m *Store) PromptPromote(_ context.Context, id, promptID string) (session.Prompt, error) {
	return m.changeQueued("PromptPromote", id, promptID, func(p *session.Prompt) { p.Rank = -1 })
}

// PromptWithdraw implements api.Store.
func (m *Store) PromptWithdraw(_ context.Context, id, promptID string) (session.Prompt, error) {
	return m.changeQueued("PromptWithdraw", id, promptID, func(p *session.Prompt) {
		p.Status, p.Reason = session.PromptCancelled, session.ReasonWithdrawn
	})
}

func (m *Store) changeQueued(method, id, promptID string, change func(*session.Prompt)) (session.Prompt, error) {
	leave, err := m.enter(method)
	if err != nil {
		return session.Prompt{}, err
	}
	defer leave()
	p, err := m.find(id, promptID)
	if err != nil {
		return session.Prompt{}, err
	}
	if p.Status != session.PromptQueued {
		return session.Prompt{}, failure.Errorf(failure.NotQueued, "the prompt is %s", p.Status)
	}
	change(p)
	return *p, nil
}

// PromptsClear implements api.Store.
func (m *Store) PromptsClear(_ context.Context, id string) ([]string, error) {
	leave, err := m.enter("PromptsClear")
	if err != nil {
		return nil, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for i := range r.Prompts {
		if p := &r.Prompts[i]; p.Status == session.PromptQueued {
			p.Status, p.Reason = session.PromptCancelled, session.ReasonCleared
			ids = append(ids, p.ID)
		}
	}
	return ids, nil
}

// PromptsCollected implements api.Store.
func (m *Store) PromptsCollected(_ context.Context, id string) (*session.Prompt, time.Duration, error) {
	leave, err := m.enter("PromptsCollected")
	if err != nil {
		return nil, 0, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, 0, err
	}
	for i := range r.Prompts {
		p := &r.Prompts[i]
		if p.CollectUntil.IsZero() || p.Status != session.PromptQueued {
			continue
		}
		if left := time.Until(p.CollectUntil); left > 0 {
			return nil, left, nil
		}
		p.CollectUntil = time.Time{}
		next := *p
		_, next.Attended = m.attendants[id]
		next.Notify = !next.Attended
		return &next, 0, nil
	}
	return nil, 0, nil
}
