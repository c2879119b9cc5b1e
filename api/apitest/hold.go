package apitest

import (
	"context"
	"time"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// SessionHold implements api.Store.
func (m *Store) SessionHold(_ context.Context, id, reason string) (session.Session, error) {
	return m.hold("SessionHold", id, func(h *session.QueueHold) {
		if !h.Held() {
			h.Since = time.Now()
		}
		if reason != "" {
			h.Reason = reason
		}
	})
}

// SessionRelease implements api.Store.
func (m *Store) SessionRelease(_ context.Context, id string) (session.Session, *session.Prompt, error) {
	released, err := m.hold("SessionRelease", id, func(h *session.QueueHold) { *h = session.QueueHold{} })
	if err != nil {
		return session.Session{}, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.rows[id].Prompts {
		if p.Status == session.PromptQueued {
			_, p.Attended = m.attendants[id]
			p.Notify = !p.Attended
			return released, &p, nil
		}
	}
	return released, nil, nil
}

func (m *Store) hold(method, id string, change func(*session.QueueHold)) (session.Session, error) {
	leave, err := m.enter(method)
	if err != nil {
		return session.Session{}, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return session.Session{}, err
	}
	if r.Session.Status.Final() {
		return session.Session{}, failure.Errorf(failure.Terminated, "the session is terminated")
	}
	change(&r.Session.Queue.Hold)
	m.Append(r, event.TypeQueue, r.queue())
	return r.view(), nil
}
