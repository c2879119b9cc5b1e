package postgres

import (
	"cmp"
	"context"

	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// attendable reports whether the attempt that ends a run may claim the next prompt: the turn ended
// well in the newest sandbox of the session, for the workflow run that owns the session, and no
// command is pending.
func (s *sessionTx) attendable(run dbsqlc.Run, ending run.Ending, found session.Look) bool {
	return ending.Attend != "" && ending.Outcome == session.OutcomeCompleted && len(found.Commands) == 0 &&
		s.row.Status == string(session.Running) && run.Generation == s.row.Generation && s.row.WorkflowRun == ending.RecheckFor
}

// RunClaim claims the next prompt of a session for its attendant and makes the attendant's attempt
// the one whose appends count, like RunBegin and RunAttach together. It is idempotent for a token.
// It claims nothing for an attendant that the session no longer has, in a session that is not
// running or has a newer generation, during another run, while a command is pending, or while the
// queue is held. The context names the workflow run of the attendant.
func (db *DB) RunClaim(ctx context.Context, c run.Claim) (claimed run.Claimed, err error) {
	var (
		open     dbsqlc.Run
		next     dbsqlc.Prompt
		commands []dbsqlc.SessionCommand
		head     []dbsqlc.PromptHeadRow
		of       surroundings
		ofErr    error // only for a session that does not exist, which the lock reports
	)
	read := func(in *lookups) error {
		var openErr, nextErr, commandsErr, headErr error
		if open, openErr = db.q.RunGetOpen(ctx, in, c.SessionID); isNoRows(openErr) {
			openErr = nil
		}
		if next, nextErr = db.q.PromptNext(ctx, in, c.SessionID); isNoRows(nextErr) {
			nextErr = nil
		}
		commands, commandsErr = db.q.CommandsPending(ctx, in, c.SessionID)
		head, headErr = promptHead(ctx, db.q, in, c.SessionID)
		// A run that begins has not reached an agent, so its id does not matter.
		ofErr = of.read(ctx, db.q, in, c.SessionID, c.Generation, c.RunID)
		return cmp.Or(openErr, nextErr, commandsErr, headErr)
	}
	err = db.inSessionWith(ctx, "claim the next prompt", c.SessionID, read, func(s *sessionTx) error {
		claimed, s.from = run.Claimed{}, inTurn
		if c.Attendant == "" || s.row.Attendant != c.Attendant || s.row.Generation != c.Generation || s.row.Status != string(session.Running) {
			return nil
		}
		if (open.ID == c.RunID || open.ClaimID == c.RunID) && open.Token == c.Token { // the response to this claim was lost
			return s.claimed(ctx, open, &claimed)
		}
		if open.ID != "" || len(commands) > 0 {
			claimed.Commanded = open.ID == ""
			return nil
		}
		claimed.Attended = true
		if next.ID == "" || s.held() {
			return nil
		}
		run := dbsqlc.Run{
			ID: claimOf(next, c.RunID), ClaimID: c.RunID, SessionID: c.SessionID, PromptID: next.ID, Generation: c.Generation, StartedAt: s.now, LastFrame: -1,
			Token: c.Token, Attempt: 1, Dispatch: 1, HeldDispatch: 1, HeldAttempt: c.Attempt, Doing: string(run.DoingAttached),
		}
		if ofErr != nil {
			return ofErr
		}
		start, err := s.startOf(ctx, run, next, of)
		if err != nil {
			return err
		}
		claimed.Start = &start
		p := &claimed.Start.Prompt
		p.Status, p.RunID, p.StartedAt, p.Claims = session.PromptProcessing, run.ID, s.now, p.Claims+1
		if c.Expected != nil {
			s.later.sent = func() { c.Expected(start) }
		}
		return s.claim(ctx, next, head, run, c.Attendant)
	})
	if err != nil {
		return run.Claimed{}, err
	}
	if claimed.Start != nil {
		db.runs.remember(claimed.Start.Run.ID, runKey{sessionID: c.SessionID, promptID: claimed.Start.Prompt.ID, generation: c.Generation})
		err = db.openState(&claimed.Start.Run)
	}
	return claimed, err
}

func (s *sessionTx) claimed(ctx context.Context, run dbsqlc.Run, claimed *run.Claimed) error {
	start, err := s.runStart(ctx, run, new(startable))
	claimed.Attended, claimed.Start = true, &start
	return err
}

// AttendantLeave ends an attendance and returns the pending work for the workflow, which then
// counts as read. It returns nil if the session has another attendant or none: its workflow has
// then read the work itself.
func (db *DB) AttendantLeave(ctx context.Context, sessionID, attendant, workflowRunID string) (look *session.Look, err error) {
	var waits looking
	read := func(in *lookups) error { return waits.read(ctx, db.q, in, sessionID) }
	err = db.inSessionWith(ctx, "end an attendance", sessionID, read, func(s *sessionTx) error {
		look = nil
		if attendant == "" || s.row.Attendant != attendant {
			return nil
		}
		found := waits.found(s)
		look = &found
		return cmp.Or(s.q.SessionLeave(ctx, &s.later, sessionID), s.recordRead(ctx, workflowRunID))
	})
	if err != nil {
		return nil, err
	}
	return look, nil
}

// SessionReclaim is SessionLook for the workflow of a session that may have an attendant. Unless a
// run is in progress, it ends the attendance: from then on only the workflow claims prompts.
func (db *DB) SessionReclaim(ctx context.Context, sessionID, workflowRunID string) (taken run.Reclaimed, err error) {
	var waits looking
	var open dbsqlc.Run
	read := func(in *lookups) (err error) {
		if open, err = db.q.RunGetOpen(ctx, in, sessionID); isNoRows(err) {
			err = nil
		}
		return cmp.Or(err, waits.read(ctx, db.q, in, sessionID))
	}
	err = db.inSessionWith(ctx, "take a session back", sessionID, read, func(s *sessionTx) error {
		taken = run.Reclaimed{Look: waits.found(s), LastActivity: s.row.LastActivityAt.UTC()}
		if err := s.recordRead(ctx, workflowRunID); err != nil {
			return err
		}
		if open.ID == "" {
			return s.q.SessionLeave(ctx, &s.later, sessionID)
		}
		p, err := s.promptGet(ctx, open.PromptID)
		if err != nil {
			return err
		}
		taken.Run = processingOf(open, p.Ordinal, p.OnUnknown)
		return nil
	})
	if err != nil {
		return run.Reclaimed{}, err
	}
	return taken, nil
}
