package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/run"
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
	return db.transitionRecord(ctx, t, alongside{})
}

// TransitionRecordEnded is TransitionRecord and SandboxEnd of generations of the session in one transaction.
// A transition that was recorded before ended its sandboxes with it, and ends no others.
func (db *DB) TransitionRecordEnded(ctx context.Context, t session.Transition, ended []int64, reason string) error {
	return db.transitionRecord(ctx, t, alongside{before: func(s *sessionTx, have *deciding) error {
		if t.No <= s.row.TransitionNo {
			return nil
		}
		for _, generation := range ended {
			if err := s.sandboxEnd(ctx, generation, reason); err != nil {
				return err
			}
			if generation == s.row.Generation {
				have.view.SandboxID = "" // as the view shows a session whose sandbox has ended
			}
		}
		return nil
	}})
}

// TransitionRecordReady is, in one transaction, TransitionRecord, SandboxRecord of the sandbox that
// the session runs in, unless proved is empty, BundleProve, and, unless claim is zero,
// RunBeginAllotted. The claim cannot make the transition fail: a prompt that it may not have is not
// granted. A transition that was recorded before claims nothing, but the verdict has its open run.
func (db *DB) TransitionRecordReady(ctx context.Context, t session.Transition, ready session.SandboxRow, proved string, claim run.Proposal) (run.Verdict, error) {
	var reserved dbsqlc.Sandbox
	var candidate claimable
	var verdict run.Verdict
	var fresh bool
	with := alongside{reads: []func(*lookups) error{db.sandboxReserved(ctx, t.SessionID, ready.Generation, &reserved)}}
	if proved != "" {
		with.reads = append(with.reads, func(in *lookups) error {
			_, err := db.q.BundleProve(ctx, in, proved)
			if isNoRows(err) {
				return failure.Errorf(failure.NoBundle, "there is no bundle %s", proved)
			}
			return err
		})
	}
	if claim.PromptID != "" {
		with.reads = append(with.reads, func(in *lookups) error { return candidate.read(ctx, db.q, in, t.SessionID, claim.PromptID) })
	}
	with.before = func(s *sessionTx, have *deciding) error {
		fresh, verdict = t.No > s.row.TransitionNo, run.Verdict{}
		if !fresh { // recorded before, together with the sandbox
			return nil
		}
		if err := s.sandboxRecord(ctx, reserved, ready); err != nil {
			return err
		}
		have.view.SandboxID, have.view.SandboxStatus, have.view.SandboxSeenAt = ready.SandboxID, string(ready.Health), s.now
		if proved == "" {
			return nil
		}
		return s.q.SnapshotsRelease(ctx, &s.later, t.SessionID)
	}
	with.after = func(s *sessionTx) (err error) {
		if claim.PromptID == "" || !fresh && candidate.open.ClaimID != claim.ID {
			return nil
		}
		verdict, err = s.begin(ctx, &candidate, claim.ID, t.Generation, true)
		if code := failure.CodeOf(err); code == failure.IllegalState || code == failure.NoPrompt {
			err = nil
		}
		return err
	}
	if err := db.transitionRecord(ctx, t, with); err != nil || !verdict.Granted {
		return run.Verdict{}, err
	}
	db.runs.remember(verdict.RunID, runKey{sessionID: t.SessionID, promptID: claim.PromptID, generation: t.Generation})
	return verdict, nil
}

// alongside is what a transition's transaction does besides recording it.
type alongside struct {
	reads  []func(*lookups) error // are sent together with the lock
	before func(*sessionTx, *deciding) error
	after  func(*sessionTx) error
}

// transitionRecord records a transition, and in the same transaction does the rest.
func (db *DB) transitionRecord(ctx context.Context, t session.Transition, with alongside) error {
	for {
		recorded := true
		var have deciding
		read := func(in *lookups) error {
			err := have.read(ctx, db.q, t.SessionID, in)
			for _, also := range with.reads {
				err = cmp.Or(err, also(in))
			}
			return err
		}
		err := db.inSessionWith(ctx, "record a transition", t.SessionID, read, func(s *sessionTx) (err error) {
			if with.before != nil {
				if err := with.before(s, &have); err != nil {
					return err
				}
			}
			if recorded, err = s.transitionRecord(ctx, t, &have); err != nil || !recorded || with.after == nil {
				return err
			}
			return with.after(s)
		})
		if err != nil || recorded {
			return err
		}
	}
}

// deciding has the rows that decide whether a transition or a command is accepted, except that of the session.
type deciding struct {
	run      dbsqlc.Run
	commands []session.Command
	view     dbsqlc.SessionView // the transition does not change the sandbox in it
}

func (d *deciding) read(ctx context.Context, q *dbsqlc.Queries, sessionID string, in *lookups) error {
	err := d.readCommands(ctx, q, sessionID, in)
	view, viewErr := q.SessionGet(ctx, in, sessionID)
	d.view = view
	if isNoRows(viewErr) {
		viewErr = nil // the lock fails for the same reason
	}
	return cmp.Or(err, viewErr)
}

// readCommands is read without the view of the session.
func (d *deciding) readCommands(ctx context.Context, q *dbsqlc.Queries, sessionID string, in *lookups) error {
	run, runErr := q.RunGetOpen(ctx, in, sessionID)
	rows, rowsErr := q.CommandsPending(ctx, in, sessionID)
	d.run, d.commands = run, commandsOf(rows)
	if isNoRows(runErr) {
		runErr = nil
	}
	return cmp.Or(runErr, rowsErr)
}

// transitionRecord records a transition, unless more prompts must end before it than one
// transaction allows.
func (s *sessionTx) transitionRecord(ctx context.Context, t session.Transition, have *deciding) (recorded bool, err error) {
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
	if err := have.allows(t); err != nil {
		return false, err
	}
	if t.To.Final() {
		if _, more, err := s.cancelSome(ctx, session.ReasonSessionTerminated); err != nil || more {
			return false, err
		}
	}
	if err := s.commandsTransit(ctx, t, have.commands); err != nil {
		return false, err
	}
	if err := s.q.SessionSetLoaded(ctx, &s.later, &dbsqlc.SessionSetLoadedParams{ID: t.SessionID, Loaded: true}); err != nil {
		return false, err
	}
	if err := s.transit(ctx, t, sandboxOf(have.view)); err != nil || !t.To.Final() {
		return true, err
	}
	return true, s.q.SnapshotsRelease(ctx, &s.later, t.SessionID)
}

// allows checks that a transition is still valid since the workflow decided on it: the command that
// requests it is still pending, and no turn runs in a sandbox that the session is about to leave.
func (d *deciding) allows(t session.Transition) error {
	requested := func(c session.Command) bool { return c.ID == t.Command }
	if t.Command != "" && !slices.ContainsFunc(d.commands, requested) {
		return illegal("command %s is no longer pending", t.Command)
	}
	if t.To == session.Hibernating && d.run.ID != "" && d.run.ParkedAt == nil {
		return illegal("run %s has not ended", d.run.ID)
	}
	return nil
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
