package apitest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// SessionFork implements api.Store.
func (m *Store) SessionFork(_ context.Context, f fork.Fork, first *session.Prompt, idem session.Idempotency) (session.Session, bool, error) {
	leave, err := m.enter("SessionFork")
	if err != nil {
		return session.Session{}, false, err
	}
	defer leave()
	if idem.Key != "" {
		if have, ok := m.keys[idem.Key]; ok && have.Digest != idem.Digest {
			return session.Session{}, false, failure.Errorf(failure.Idempotency, "the idempotency key was used for another request")
		} else if ok {
			return m.rows[m.made[idem.Key]].view(), false, nil
		}
	}
	if idem.Refusal != nil {
		return session.Session{}, false, idem.Refusal
	}
	r, err := m.get(f.SessionID)
	if err != nil {
		return session.Session{}, false, err
	}
	i := slices.IndexFunc(r.Bundles, func(v bundle.View) bool {
		return v.ID == f.BundleID || f.PromptID != "" && v.PromptID == f.PromptID
	})
	switch {
	case i < 0 && f.BundleID != "":
		return session.Session{}, false, failure.Errorf(failure.NoBundle, "there is no bundle %s", f.BundleID)
	case i < 0:
		none := failure.Errorf(failure.NoBundleThere, "no bundle was saved right after prompt %s", f.PromptID)
		for _, v := range r.Bundles {
			none.Fields = append(none.Fields, failure.Field{Field: "nearest.before", Message: v.ID})
		}
		return session.Session{}, false, none
	}
	made := r.Session
	made.ID, made.Status, made.ForkedFrom, made.CreatedAt, made.Loaded = f.ID, session.Hibernated, f.SessionID, time.Now(), false
	made.Fork = fork.Point{BundleID: r.Bundles[i].ID, PromptID: r.Bundles[i].PromptID}
	if f.Title != "" {
		made.Title = f.Title
	}
	if f.Agent != "" && f.Agent != made.Agent {
		made.Fork.HandedFrom, made.Agent, made.Options.Model = made.Agent, f.Agent, ""
	}
	row := &Row{Session: made, First: 1, Conversation: r.Conversation}
	if first != nil {
		row.Prompts, row.Attachments = append(row.Prompts, *first), first.Attachments
	}
	m.rows[f.ID] = row
	if idem.Key != "" {
		m.keys[idem.Key], m.made[idem.Key] = idem, f.ID
	}
	return row.view(), true, nil
}

// SessionForks implements api.Store.
func (m *Store) SessionForks(_ context.Context, id string, _ int, _ string) (items []session.Session, next string, err error) {
	leave, err := m.enter("SessionForks")
	if err != nil {
		return nil, "", err
	}
	defer leave()
	if _, err := m.get(id); err != nil {
		return nil, "", err
	}
	for _, r := range m.rows {
		if r.Session.ForkedFrom == id {
			items = append(items, r.view())
		}
	}
	slices.SortFunc(items, func(a, b session.Session) int { return strings.Compare(b.ID, a.ID) })
	return items, "", nil
}
