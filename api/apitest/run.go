package apitest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// RunSubmit implements api.Store. If a bundle is not the newest of its session, or Fork is set, the
// run gets a separate session.
func (m *Store) RunSubmit(ctx context.Context, r run.Request, idem session.Idempotency) (v run.View, p session.Prompt, created bool, err error) {
	leave, err := m.enter("RunSubmit")
	if err != nil {
		return v, p, false, err
	}
	have, used := m.keys[idem.Key]
	made := m.made["run "+idem.Key]
	row, bundleID := m.rows[r.BaseSession], r.BaseBundle
	for _, other := range m.rows {
		if slices.ContainsFunc(other.Bundles, func(b bundle.View) bool { return b.ID == r.BaseBundle }) {
			row = other
		}
	}
	leave()
	switch {
	case idem.Key != "" && used && have.Digest != idem.Digest:
		return v, p, false, failure.Errorf(failure.Idempotency, "the idempotency key was used for another request")
	case idem.Key != "" && used:
		v, err = m.RunShow(ctx, made)
		return v, p, false, err
	case idem.Refusal != nil:
		return v, p, false, idem.Refusal
	case row == nil:
		return v, p, false, failure.Errorf(failure.NoSession, "there is no session %s", r.BaseSession)
	}
	p = r.Prompt
	p.AllottedRun, p.BaseSession = session.NewID(session.RunPrefix), row.Session.ID
	head := ""
	if n := len(row.Bundles); n > 0 {
		head = row.Bundles[n-1].ID
	}
	if p.BaseBundle = head; bundleID != "" {
		p.BaseBundle = bundleID
	}
	switch {
	case (r.Fork || bundleID != "" && bundleID != head) && p.BaseBundle == "":
		return v, p, false, failure.Errorf(failure.NoBundleThere, "session %s has no bundle yet", row.Session.ID)
	case r.Fork || bundleID != "" && bundleID != head:
		p.SessionID, p.Ordinal, p.Notify = r.SessionID, 1, true
		f := fork.Fork{ID: r.SessionID, SessionID: row.Session.ID, BundleID: p.BaseBundle, Profile: r.Profile, Agent: r.Agent}
		if _, _, err := m.SessionFork(ctx, f, &p, session.Idempotency{}); err != nil {
			return v, p, false, err
		}
	case slices.ContainsFunc(row.Prompts, func(p session.Prompt) bool { return !p.Status.Final() }):
		return v, p, false, failure.Errorf(failure.RunUnfinished, "a prompt of session %s is not over", row.Session.ID)
	default:
		p.SessionID = row.Session.ID
		if p, _, _, err = m.PromptSubmit(ctx, p); err != nil {
			return v, p, false, err
		}
	}
	m.mu.Lock()
	if idem.Key != "" {
		m.keys[idem.Key], m.made["run "+idem.Key] = idem, p.AllottedRun
	}
	m.mu.Unlock()
	v, err = m.RunShow(ctx, p.AllottedRun)
	return v, p, true, err
}

// RunShow implements api.Store.
func (m *Store) RunShow(_ context.Context, id string) (run.View, error) {
	leave, err := m.enter("RunShow")
	if err != nil {
		return run.View{}, err
	}
	defer leave()
	for _, v := range m.runs() {
		if v.ID == id {
			return v, nil
		}
	}
	return run.View{}, failure.Errorf(failure.NoRun, "there is no run %s", id)
}

// RunList implements api.Store.
func (m *Store) RunList(_ context.Context, f run.Filter) (items []run.View, next string, err error) {
	leave, err := m.enter("RunList")
	if err != nil {
		return nil, "", err
	}
	defer leave()
	for _, v := range m.runs() {
		if (f.Cursor == "" || v.ID < f.Cursor) && (f.SessionID == "" || v.SessionID == f.SessionID) && (f.Status == "" || v.Status == f.Status) && (f.Agent == "" || v.Agent == f.Agent) {
			items = append(items, v)
		}
	}
	if len(items) > f.Limit {
		items = items[:f.Limit]
		next = items[f.Limit-1].ID
	}
	return items, next, nil
}

// runs returns all runs, newest first.
func (m *Store) runs() (all []run.View) {
	for _, r := range m.rows {
		for _, p := range r.Prompts {
			v := run.View{
				ID: p.Run(), SessionID: r.Session.ID, PromptID: p.ID, Agent: r.Session.Agent, BaseSession: p.BaseSession, BaseBundle: p.BaseBundle,
				JoinedTo: p.JoinedTo, Status: p.Status, Reason: p.Reason, Usage: p.Usage, CreatedAt: p.CreatedAt,
			}
			if v.ID == "" {
				continue
			}
			if p.Status != session.PromptQueued {
				v.Attempts, v.StartedAt = 1, p.CreatedAt
			}
			if p.Status.Final() {
				v.EndedAt = time.Now()
			}
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b run.View) int { return strings.Compare(b.ID, a.ID) })
	return all
}
