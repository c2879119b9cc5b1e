package apitest

import (
	"context"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// CommandSubmit implements api.Store, with the same results as Postgres. Every stored command must
// be signalled.
func (m *Store) CommandSubmit(_ context.Context, c session.Command) (session.Commanded, error) {
	leave, err := m.enter("CommandSubmit")
	if err != nil {
		return session.Commanded{}, err
	}
	defer leave()
	r, err := m.get(c.SessionID)
	if err != nil {
		return session.Commanded{}, err
	}
	p := session.Pending{Status: r.Session.Status, Reason: "test", Lazy: r.Session.Lazy, Commands: r.Session.Pending}
	for _, prompt := range r.Prompts {
		if prompt.Status == session.PromptProcessing {
			p.RunID = prompt.RunID
		}
	}
	if c.BundleID != "" && !slices.ContainsFunc(r.Bundles, func(v bundle.View) bool { return v.ID == c.BundleID }) {
		return session.Commanded{}, failure.Errorf(failure.NoBundle, "session %s has no bundle %s", c.SessionID, c.BundleID)
	}
	v := session.Judge(c.Kind, p)
	if v.Refused != nil {
		return session.Commanded{}, v.Refused
	}
	if c.Kind == session.CommandAbort && c.RunID != "" && c.RunID != p.RunID {
		return session.Commanded{}, failure.Errorf(failure.NoRun, "there is no run %s", c.RunID)
	}
	r.Session.Pending = slices.DeleteFunc(slices.Clone(r.Session.Pending), func(old session.Command) bool {
		return slices.Contains(v.Supersedes, old.Kind)
	})
	if v.Already && len(v.Supersedes) == 0 {
		return session.Commanded{Session: r.view()}, nil
	}
	c.ID, c.Status, c.CreatedAt = session.NewID(session.CommandPrefix), session.CommandPending, time.Now()
	if c.Kind == session.CommandAbort {
		c.RunID = p.RunID
	}
	switch i := slices.IndexFunc(r.Session.Pending, func(old session.Command) bool { return old.Kind == c.Kind }); {
	case v.Already:
		c.Status, c.EndedAt = session.CommandApplied, time.Now()
	case i >= 0:
		r.Session.Pending[i].Force = r.Session.Pending[i].Force || c.Force
		c = r.Session.Pending[i]
	default:
		r.Session.Pending = append(r.Session.Pending, c)
	}
	m.Append(r, event.TypeCommand, event.CommandData{Command: resource.Command(c)})
	return session.Commanded{Session: r.view(), Command: &c, Notify: true}, nil
}

// End ends the pending command of a kind and sets the state of the session; an empty state leaves
// it unchanged.
func (m *Store) End(id string, kind session.CommandKind, status session.CommandStatus, reason string, to session.State) {
	m.With(id, func(r *Row) {
		i := slices.IndexFunc(r.Session.Pending, func(c session.Command) bool { return c.Kind == kind })
		if i < 0 {
			return
		}
		c := r.Session.Pending[i]
		r.Session.Pending = slices.Delete(slices.Clone(r.Session.Pending), i, i+1)
		c.Status, c.Reason, c.EndedAt = status, reason, time.Now()
		if to != "" {
			r.Session.Status, r.Session.StatusReason = to, reason
			m.Append(r, event.TypeStatus, event.StatusData{Status: to, Reason: reason})
		}
		m.Append(r, event.TypeCommand, event.CommandData{Command: resource.Command(c)})
	})
}
