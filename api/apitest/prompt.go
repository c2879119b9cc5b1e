package apitest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// PromptSubmit implements api.Store.
func (m *Store) PromptSubmit(_ context.Context, p session.Prompt) (session.Prompt, int64, bool, error) {
	leave, err := m.enter("PromptSubmit")
	if err != nil {
		return session.Prompt{}, 0, false, err
	}
	defer leave()
	r, err := m.get(p.SessionID)
	if err != nil {
		return session.Prompt{}, 0, false, err
	}
	for _, old := range r.Prompts {
		if old.ID == p.ID {
			if old.Content != p.Content || old.OnUnknown != p.OnUnknown || !slices.EqualFunc(old.Attachments, p.Attachments, sameAttachment) {
				return session.Prompt{}, 0, false, failure.Errorf(failure.PromptExists, "prompt %s has another body", p.ID)
			}
			old.Notify = old.Status == session.PromptQueued
			return old, 0, false, nil
		}
	}
	if r.Session.Status.Final() {
		return session.Prompt{}, 0, false, failure.Errorf(failure.Terminated, "the session is terminated")
	}
	if r.Session.Status == session.Error {
		return session.Prompt{}, 0, false, session.InError("test")
	}
	p.Ordinal = int64(len(r.Prompts) + 1)
	r.Attachments = append(r.Attachments, p.Attachments...)
	r.Prompts = append(r.Prompts, p)
	m.Append(r, event.TypePrompt, event.PromptSubmitted(p))
	m.Append(r, event.TypeQueue, r.queue())
	claims, attended := m.attendants[p.SessionID]
	if claims {
		r.Prompts[len(r.Prompts)-1].Status = session.PromptProcessing
	}
	held := r.Session.Queue.Hold.Held()
	p.Attended, p.Notify = attended && !held, !attended && !held
	if p.Mode == session.Steer && slices.ContainsFunc(r.Prompts, func(o session.Prompt) bool { return o.Status == session.PromptProcessing }) {
		p.Attended, p.Notify, p.Interrupts = false, false, true
	}
	if p.Mode == session.Collect {
		p.CollectUntil = time.Now().Add(p.CollectFor)
		p.Attended, p.Notify = false, false
		r.Prompts[len(r.Prompts)-1].CollectUntil = p.CollectUntil
	}
	return p, r.view().Queue.Queued, true, nil
}

// PromptSubmitIf implements api.Store.
func (m *Store) PromptSubmitIf(ctx context.Context, p session.Prompt, needs session.Needs) (session.Prompt, int64, bool, error) {
	agentName, _, present, err := m.SessionNeeds(ctx, p.SessionID, needs.Names)
	if err != nil {
		return session.Prompt{}, 0, false, err
	}
	if _, err := m.PromptGet(ctx, p.SessionID, p.ID); err != nil && !needs.Met(agentName, present) {
		return session.Prompt{}, 0, false, session.ErrUnmet
	}
	return m.PromptSubmit(ctx, p)
}

func sameAttachment(a, b attachment.Attachment) bool { return a.ID == b.ID }

// Attend gives a session an attendant. If claims is set, the attendant claims prompts when they
// arrive.
func (m *Store) Attend(id string, claims bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attendants[id] = claims
}

// PromptsUnclaimed implements api.Store.
func (m *Store) PromptsUnclaimed(_ context.Context, asked []backlog.Unclaimed) ([]backlog.Unclaimed, error) {
	leave, err := m.enter("PromptsUnclaimed")
	if err != nil {
		return nil, err
	}
	defer leave()
	var unclaimed []backlog.Unclaimed
	for _, a := range asked {
		if p, err := m.find(a.SessionID, a.PromptID); err == nil && p.Status == session.PromptQueued {
			unclaimed = append(unclaimed, a)
		}
	}
	return unclaimed, nil
}

func (m *Store) find(id, promptID string) (*session.Prompt, error) {
	r, err := m.get(id)
	if err != nil {
		return nil, err
	}
	for i := range r.Prompts {
		if r.Prompts[i].ID == promptID {
			return &r.Prompts[i], nil
		}
	}
	return nil, failure.Errorf(failure.NoPrompt, "there is no prompt %s", promptID)
}

// PromptGet implements api.Store.
func (m *Store) PromptGet(_ context.Context, id, promptID string) (session.Prompt, error) {
	leave, err := m.enter("PromptGet")
	if err != nil {
		return session.Prompt{}, err
	}
	defer leave()
	p, err := m.find(id, promptID)
	if err != nil {
		return session.Prompt{}, err
	}
	return *p, nil
}

// PromptAfter implements api.Store.
func (m *Store) PromptAfter(_ context.Context, id, promptID string) (int64, error) {
	leave, err := m.enter("PromptAfter")
	if err != nil {
		return 0, err
	}
	defer leave()
	if _, err := m.find(id, promptID); err != nil {
		return 0, err
	}
	r := m.rows[id]
	for _, e := range r.Events {
		var d event.TurnStartData
		if e.Type == event.TypeTurnStart && json.Unmarshal(e.Data, &d) == nil && d.PromptID == promptID {
			return e.Seq - 1, nil
		}
	}
	return r.First + int64(len(r.Events)) - 1, nil
}

// PromptsPending implements api.Store.
func (m *Store) PromptsPending(_ context.Context, id string, limit int) ([]string, error) {
	leave, err := m.enter("PromptsPending")
	if err != nil {
		return nil, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, status := range []session.PromptStatus{session.PromptProcessing, session.PromptQueued} {
		for _, p := range r.Prompts {
			if p.Status == status && len(ids) < limit {
				ids = append(ids, p.ID)
			}
		}
	}
	return ids, nil
}

// PromptList implements api.Store.
func (m *Store) PromptList(_ context.Context, id string, limit int, cursor string) ([]session.Prompt, string, error) {
	leave, err := m.enter("PromptList")
	if err != nil {
		return nil, "", err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, "", err
	}
	from := 0
	if cursor != "" {
		if _, err := fmt.Sscan(cursor, &from); err != nil {
			return nil, "", failure.Errorf(failure.Invalid, "the cursor is not one of ours")
		}
	}
	to := min(from+limit, len(r.Prompts))
	next := ""
	if to < len(r.Prompts) {
		next = fmt.Sprint(to)
	}
	return slices.Clone(r.Prompts[from:to]), next, nil
}

// PromptResolve implements api.Store.
func (m *Store) PromptResolve(_ context.Context, r session.Resolve) (session.Prompt, bool, error) {
	leave, err := m.enter("PromptResolve")
	if err != nil {
		return session.Prompt{}, false, err
	}
	defer leave()
	p, err := m.find(r.SessionID, r.PromptID)
	if err != nil {
		return session.Prompt{}, false, err
	}
	already, refused := session.JudgeResolve(r, *p, m.rows[r.SessionID].Session.Status, "test")
	if refused != nil {
		return session.Prompt{}, false, refused
	}
	if !already {
		p.Status, p.Reason, p.Resolved = r.Status(), r.Reason(), &session.Resolved{Action: r.Action, Note: r.Note, At: time.Now()}
	}
	resolved := *p
	resolved.Notify = p.Status == session.PromptQueued
	return resolved, !already, nil
}
