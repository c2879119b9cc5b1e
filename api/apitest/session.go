package apitest

import (
	"context"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/listing"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// SessionCreate implements api.Store.
func (m *Store) SessionCreate(_ context.Context, s session.Session, first *session.Prompt, idem session.Idempotency) (session.Session, bool, error) {
	leave, err := m.enter("SessionCreate")
	if err != nil {
		return session.Session{}, false, err
	}
	defer leave()
	if known, ok := m.keys[idem.Key]; ok && idem.Key != "" {
		if known.Digest != idem.Digest {
			return session.Session{}, false, failure.Errorf(failure.Idempotency, "the key was used with another body")
		}
		return m.rows[m.made[idem.Key]].view(), false, nil
	}
	if idem.Refusal != nil {
		return session.Session{}, false, idem.Refusal
	}
	r := &Row{Session: s, First: 1}
	m.rows[s.ID] = r
	if idem.Key != "" {
		m.keys[idem.Key], m.made[idem.Key] = idem, s.ID
	}
	if first != nil {
		r.Prompts = append(r.Prompts, *first)
		r.Attachments = append(r.Attachments, first.Attachments...)
		m.Append(r, event.TypePrompt, event.PromptSubmitted(*first))
		m.Append(r, event.TypeQueue, r.queue())
	}
	return r.view(), true, nil
}

// SessionGet implements api.Store.
func (m *Store) SessionGet(ctx context.Context, id string) (session.Session, error) {
	leave, err := m.enter("SessionGet")
	if err != nil {
		return session.Session{}, err
	}
	blocked := m.blocked
	leave()
	if blocked != nil {
		select {
		case <-blocked:
		case <-ctx.Done():
			return session.Session{}, ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.get(id)
	if err != nil {
		return session.Session{}, err
	}
	return r.view(), nil
}

// SessionNeeds implements api.Store.
func (m *Store) SessionNeeds(_ context.Context, id string, names []string) (agentName, profileRef string, present []string, err error) {
	leave, err := m.enter("SessionNeeds")
	if err != nil {
		return "", "", nil, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return "", "", nil, err
	}
	present = slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, ok := m.secrets[name]; return !ok })
	return r.Session.Agent, r.Session.Profile, present, nil
}

// found reports whether a query is contained in the title or is a prefix of the ID.
func (r *Row) found(query string) bool {
	return strings.Contains(r.Session.Title, query) || strings.HasPrefix(r.Session.ID, query)
}

// SessionList implements api.Store.
func (m *Store) SessionList(_ context.Context, f listing.Filter) ([]session.Session, string, error) {
	leave, err := m.enter("SessionList")
	if err != nil {
		return nil, "", err
	}
	defer leave()
	var ids []string
	for id, r := range m.rows {
		if (f.Status == "" || r.Session.Status == f.Status) && (f.Agent == "" || r.Session.Agent == f.Agent) && r.found(f.Query) && (f.Cursor == "" || id < f.Cursor) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	next := ""
	if len(ids) > f.Limit {
		ids = ids[:f.Limit]
		next = ids[len(ids)-1]
	}
	var out []session.Session
	for _, id := range ids {
		out = append(out, m.rows[id].view())
	}
	return out, next, nil
}

// SessionPatch implements api.Store.
func (m *Store) SessionPatch(_ context.Context, id string, p session.Patch) (session.Session, error) {
	leave, err := m.enter("SessionPatch")
	if err != nil {
		return session.Session{}, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return session.Session{}, err
	}
	if p.Title != nil {
		r.Session.Title = *p.Title
	}
	if p.Metadata != nil {
		r.Session.Metadata = p.Metadata
	}
	if p.IdleTimeout != nil {
		r.Session.IdleTimeout = *p.IdleTimeout
	}
	if p.Options != nil {
		r.Session.Options = *p.Options
	}
	if p.Workspace != nil {
		if refused := session.JudgeWorkspace(r.Session.Status, r.Session.Generation); refused != nil {
			return session.Session{}, refused
		}
		r.Session.Workspace = p.Workspace
	}
	if p.Profile != nil {
		r.Session.Profile = *p.Profile
	}
	s := r.view()
	s.Notify = p.IdleTimeout != nil && !s.Status.Final()
	return s, nil
}
