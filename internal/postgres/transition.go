package postgres

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TransitionRecord stores a transition, applies it to the session and appends the status event.
// Recording a transition again with the same number and statuses changes nothing. It returns
// illegal_state if the transition does not start at the session's status, does not have the next
// number, or is not in the table of states.
//
// A transition to terminated first ends every unfinished prompt and run, so that its status is the
// last event of the session. Prompts that were accepted since PromptsCancel end here in chunks, the
// last chunk together with the transition.
func (db *DB) TransitionRecord(ctx context.Context, t session.Transition) error {
	for {
		recorded := true
		err := db.inSession(ctx, "record a transition", t.SessionID, func(s *sessionTx) (err error) {
			recorded, err = s.transitionRecord(ctx, t)
			return err
		})
		if err != nil || recorded {
			return err
		}
	}
}

// transitionRecord records a transition, unless more prompts must end before it than one
// transaction allows.
func (s *sessionTx) transitionRecord(ctx context.Context, t session.Transition) (recorded bool, err error) {
	if t.No <= s.row.TransitionNo {
		return true, s.transitionRepeated(ctx, t)
	}
	if t.No != s.row.TransitionNo+1 {
		return false, illegal("transition %d does not follow %d", t.No, s.row.TransitionNo)
	}
	if session.State(s.row.Status) != t.From {
		return false, illegal("the session is %s, not %s", s.row.Status, t.From)
	}
	if to, err := session.Next(t.From, t.Event); err != nil || to != t.To {
		return false, illegal("%s does not lead from %s to %s", t.Event, t.From, t.To)
	}
	if t.Event == session.EventWake && t.Reason == session.ReasonPrompt && s.held() {
		return false, illegal("the queue is held: no prompt wakes the session")
	}
	pending, sandbox, err := s.transitable(ctx, t)
	if err != nil {
		return false, err
	}
	if t.To.Final() {
		if _, more, err := s.cancelSome(ctx, session.ReasonSessionTerminated); err != nil || more {
			return false, err
		}
	}
	if err := s.commandsTransit(ctx, t, pending); err != nil {
		return false, err
	}
	if err := s.q.SessionSetLoaded(ctx, &s.later, &dbsqlc.SessionSetLoadedParams{ID: t.SessionID, Loaded: true}); err != nil {
		return false, err
	}
	if err := s.transit(ctx, t, sandbox); err != nil || !t.To.Final() {
		return true, err
	}
	return true, s.q.SnapshotsRelease(ctx, &s.later, t.SessionID)
}

// transitable checks that a transition is still valid since the workflow decided on it: the command
// that requests it is still pending, and no turn runs in a sandbox that the session is about to
// leave. It returns the pending commands, and the sandbox; nil if there is none.
func (s *sessionTx) transitable(ctx context.Context, t session.Transition) ([]session.Command, *session.SandboxView, error) {
	var view dbsqlc.SessionView // the transition does not change the sandbox in it
	p, err := s.commandable(ctx, func(in *lookups) (err error) {
		view, err = s.q.SessionGet(ctx, in, t.SessionID)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	asked := func(c session.Command) bool { return c.ID == t.Command }
	if t.Command != "" && !slices.ContainsFunc(p.Commands, asked) {
		return nil, nil, illegal("command %s is no longer pending", t.Command)
	}
	if t.To == session.Hibernating && p.RunID != "" && !p.Parked {
		return nil, nil, illegal("run %s has not ended", p.RunID)
	}
	return p.Commands, sandboxOf(view), nil
}

func (s *sessionTx) transitionRepeated(ctx context.Context, t session.Transition) error {
	have, err := s.q.TransitionGet(ctx, s, &dbsqlc.TransitionGetParams{SessionID: t.SessionID, No: t.No})
	if isNoRows(err) {
		return illegal("there is no transition %d", t.No)
	}
	if err != nil {
		return err
	}
	if have.FromStatus != string(t.From) || have.ToStatus != string(t.To) {
		return illegal("transition %d was from %s to %s", t.No, have.FromStatus, have.ToStatus)
	}
	return nil
}

func (s *sessionTx) transit(ctx context.Context, t session.Transition, sandbox *session.SandboxView) error {
	at := t.At.UTC()
	if t.At.IsZero() {
		at = s.now
	}
	var receipt []byte
	if t.Receipt != nil {
		var err error
		if receipt, err = json.Marshal(resource.Receipt(t.Receipt)); err != nil {
			return err
		}
	}
	reason := text(t.Reason)
	err := s.q.TransitionInsert(ctx, &s.later, &dbsqlc.TransitionInsertParams{
		SessionID: t.SessionID, No: t.No, FromStatus: string(t.From), ToStatus: string(t.To),
		Event: string(t.Event), Reason: reason, Generation: t.Generation, Receipt: receipt, At: at, CommandID: t.Command,
	})
	if err != nil {
		return err
	}
	err = s.q.SessionTransit(ctx, &s.later, &dbsqlc.SessionTransitParams{
		ID: t.SessionID, Status: string(t.To), Reason: reason, ErrorCause: string(t.Cause), No: t.No, Receipt: receipt, At: at,
	})
	if err != nil {
		return err
	}
	if receipt != nil {
		if err := s.bundleRestored(ctx, receipt, at); err != nil {
			return err
		}
	}
	// Add the event before the row changes: a terminated session accepts no events.
	err = s.add(event.TypeStatus, "", event.StatusData{
		Status: t.To, Reason: reason, Transition: t.No,
		Sandbox: resource.Sandbox(sandbox), Receipt: resource.Receipt(t.Receipt),
	})
	s.row.Status, s.row.StatusReason, s.row.TransitionNo = string(t.To), reason, t.No
	if err != nil || t.To != session.Error && t.From != session.Error {
		return err
	}
	return s.reportBlocked(ctx, t.To, reason)
}

func receiptOf(data []byte) (*receipt.Receipt, error) {
	if data == nil {
		return nil, nil
	}
	var r resource.ReceiptJSON
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	return &receipt.Receipt{Kind: r.Kind, Missing: r.Missing, Unchecked: r.Unchecked, Moved: r.Moved, HandedFrom: r.HandedFrom}, nil
}
