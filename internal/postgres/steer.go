package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Prompts of the mode steer are for the turn in progress. If the turn's attempt reports that its
// agent accepts prompts during a turn, they wait at the front of the queue until the agent takes
// them; otherwise the turn is interrupted.
//
//	submitted ──▶ queued, for the run ── SteersTake ──▶ processing, in the run ── SteersSettle: the agent has it ──▶ ends with the run
//	                 │                                     │
//	                 └── the run ends before ──▶ queued ◀──┘ the run ends, and the agent has declined it or died
//
// A processing prompt may have been written to the agent. So if the run ends before all output of
// the agent was read, the prompt gets the outcome of the run.

// steerRank returns the rank of a new prompt of the mode steer: before all queued prompts, but
// after other prompts of its mode at the front.
func steerRank(head []dbsqlc.PromptHeadRow) int64 {
	for _, p := range head {
		switch {
		case p.Status != string(session.PromptQueued):
		case p.Mode == string(session.Steer) && p.Rank < 0:
			return p.Rank
		default:
			return min(0, p.Rank) - 1
		}
	}
	return -1
}

// steersIn counts the prompts that a new one of the mode steer follows.
func steersIn(head []dbsqlc.PromptHeadRow) (n int) {
	rank := steerRank(head)
	for _, p := range head {
		if p.Status == string(session.PromptQueued) && p.Rank == rank {
			n++
		}
	}
	return n
}

// steer marks a submitted prompt for the agent of the open run or, if that is not possible,
// interrupts the run with an abort that gives this reason. It reports whether the workflow must be
// signalled. If an abort is pending, it adds none. It does not interrupt the run while the queue is
// held, because the prompt could not start, or if the session is about to stop.
func (s *sessionTx) steer(ctx context.Context, p session.Prompt, open dbsqlc.Run, head []dbsqlc.PromptHeadRow) (notify bool, err error) {
	if open.ID == "" || s.held() {
		return false, nil
	}
	pending, err := s.commandable(ctx)
	if err != nil {
		return false, err
	}
	takes, err := s.takesPrompts(ctx, p, open, head, pending)
	if err != nil {
		return false, err
	}
	if takes {
		s.steers = true
		return false, s.q.PromptSteers(ctx, &s.later, &dbsqlc.PromptSteersParams{SessionID: s.row.ID, ID: p.ID, RunID: open.ID})
	}
	verdict := session.Judge(session.CommandAbort, pending)
	if possible := verdict.Refused == nil && !verdict.Already; !possible {
		return false, nil
	}
	var done session.Commanded
	abort := session.Command{
		SessionID: s.row.ID, Kind: session.CommandAbort, RunID: open.ID, Reason: session.ReasonSteered, RequestID: p.RequestID,
	}
	err = s.commandAccept(ctx, abort, pending, verdict, &done)
	return done.Notify, err
}

// takesPrompts reports whether a prompt of the mode steer can be given to the agent of the open
// run. It cannot if it has files, which must be placed before a turn, if the agent waits for
// people, if its policy for an unknown outcome differs from that of the run's other prompts, or if
// another prompt of that mode waits for the end of the turn.
func (s *sessionTx) takesPrompts(
	ctx context.Context, p session.Prompt, open dbsqlc.Run, head []dbsqlc.PromptHeadRow, pending session.Pending,
) (bool, error) {
	attended := open.SteersToken != "" && open.SteersToken == open.Token && open.ParkedAt == nil
	if !attended || open.Steers >= session.MaxSteered || len(p.Attachments) > 0 || len(pending.Commands) > 0 {
		return false, nil
	}
	waits := func(o dbsqlc.PromptHeadRow) bool {
		return o.Status == string(session.PromptQueued) && o.Mode == string(session.Steer) && o.Rank < 0 && o.SteersRun != open.ID
	}
	if slices.ContainsFunc(head, waits) {
		return false, nil
	}
	var in lookups
	var asks bool
	var own dbsqlc.Prompt
	err := in.also(ctx, s.Conn, func(in *lookups) error {
		var asksErr, ownErr error
		asks, asksErr = s.q.QuestionsAreOpen(ctx, in, open.ID)
		own, ownErr = s.q.PromptGet(ctx, in, &dbsqlc.PromptGetParams{SessionID: s.row.ID, ID: open.PromptID})
		return cmp.Or(asksErr, ownErr)
	})
	return !asks && own.OnUnknown == string(p.OnUnknown), err
}

// SteersWait reports whether SteersTake may return another prompt. It takes no locks.
func (db *DB) SteersWait(ctx context.Context, runID string) (bool, error) {
	waits, err := db.q.SteersWait(ctx, db.pool, runID)
	return waits, fault("look for prompts for a turn", err)
}

// SteersTake returns the prompts that the attempt gives to the agent in the running turn, in order:
// those that any attempt has taken before, and with More the next one that waits for the turn. It
// takes none while the queue is held, or while a command is pending, which may interrupt the turn.
// It returns illegal_state if the run has ended or another attempt has it.
func (db *DB) SteersTake(ctx context.Context, t run.SteerTake) (prompts []session.Prompt, err error) {
	err = db.inRun(ctx, "take a prompt for a turn", t.RunID, func(s *sessionTx, run dbsqlc.Run) error {
		prompts = nil
		if run.EndedAt != nil || t.Token == "" || run.Token != t.Token {
			return illegal("another attempt has run %s, or the run has ended", run.ID)
		}
		rows, err := s.q.SteersTaken(ctx, s, &dbsqlc.SteersTakenParams{SessionID: s.row.ID, RunID: run.ID, Part: &t.Part})
		if err != nil {
			return err
		}
		if t.More && !s.held() && run.ParkedAt == nil {
			row, err := s.steerTake(ctx, run)
			if err != nil {
				return err
			}
			if row != nil {
				rows = append(rows, *row)
			}
		}
		for _, row := range rows {
			prompts = append(prompts, promptOf(row))
		}
		return nil
	})
	return prompts, err
}

// steerTake takes the next prompt that waits for the turn of a run; nil if there is none.
func (s *sessionTx) steerTake(ctx context.Context, run dbsqlc.Run) (*dbsqlc.Prompt, error) {
	next, err := s.q.SteerNext(ctx, s, &dbsqlc.SteerNextParams{SessionID: s.row.ID, RunID: run.ID})
	if isNoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	pending, err := s.q.CommandsPending(ctx, s, s.row.ID)
	if err != nil || len(pending) > 0 {
		return nil, err
	}
	row, err := s.q.SteerTake(ctx, s, &dbsqlc.SteerTakeParams{
		SessionID: s.row.ID, ID: next.ID, RunID: run.ID, JoinedTo: run.PromptID, At: s.now,
	})
	if err != nil {
		return nil, err
	}
	if err := s.addPrompt(row); err != nil {
		return nil, err
	}
	return &row, s.reportQueue(ctx, queueChange(event.QueueUpdated, itemOf(row)))
}

// SteersSettle records that an agent has accepted prompts in the running turn: they end with it. It
// changes nothing if another attempt has the run.
func (db *DB) SteersSettle(ctx context.Context, t run.SteerTaken) error {
	err := db.q.SteersSettle(ctx, db.pool, &dbsqlc.SteersSettleParams{RunID: t.RunID, Token: t.Token, Part: t.Part, Ids: t.PromptIDs})
	return fault("record prompts of a turn", err)
}

// steersEnd ends the prompts that were given to the turn of a run, or requeues them, and returns
// them in their new state.
func (s *sessionTx) steersEnd(ctx context.Context, run dbsqlc.Run, ending run.Ending, requeue bool) ([]dbsqlc.Prompt, error) {
	if run.Steers == 0 || requeue { // promptQueue requeues them
		return nil, nil
	}
	rows, err := s.q.SteersOf(ctx, s, &dbsqlc.SteersOfParams{SessionID: s.row.ID, RunID: run.ID})
	if err != nil {
		return nil, err
	}
	read := (ending.Read || ending.Token != "") && ending.Outcome != session.OutcomeUnknown
	var final, requeued []string
	for _, row := range rows {
		if row.Taken || !read {
			final = append(final, row.ID)
		} else {
			requeued = append(requeued, row.ID)
		}
	}
	var ended, returned []dbsqlc.Prompt
	if len(final) > 0 {
		ended, err = s.q.SteersEnd(ctx, s, &dbsqlc.SteersEndParams{
			SessionID: s.row.ID, Ids: final, Status: string(ending.Outcome.PromptStatus()), Reason: session.ReasonJoined, At: s.now,
		})
		if err != nil {
			return nil, err
		}
	}
	if len(requeued) > 0 {
		if returned, err = s.q.SteersReturn(ctx, s, &dbsqlc.SteersReturnParams{SessionID: s.row.ID, Ids: requeued}); err != nil {
			return nil, err
		}
	}
	return append(ended, returned...), nil
}

// steersRequeue requeues the prompts that were given to the turn of a prompt together with it, and
// returns the changes of the queue.
func (s *sessionTx) steersRequeue(ctx context.Context, p dbsqlc.Prompt) ([]event.QueueChange, error) {
	rows, err := s.q.SteersRequeue(ctx, s, &dbsqlc.SteersRequeueParams{SessionID: s.row.ID, ID: p.ID})
	if err != nil {
		return nil, err
	}
	return s.reportSteers(rows)
}

// reportSteers appends the events of prompts that were given to a turn, and returns the changes of
// the queue.
func (s *sessionTx) reportSteers(rows []dbsqlc.Prompt) ([]event.QueueChange, error) {
	var ended, requeued []dbsqlc.Prompt
	for _, row := range rows {
		if session.PromptStatus(row.Status).Final() {
			ended = append(ended, row)
		} else {
			requeued = append(requeued, row)
		}
	}
	removed, err := s.reportJoined(ended, event.QueueRemoved)
	if err != nil {
		return nil, err
	}
	added, err := s.reportJoined(requeued, event.QueueAdded)
	return append(removed, added...), err
}

// steered sets the reason of a run that was interrupted for a prompt of the mode steer.
func (s *sessionTx) steered(ctx context.Context, runID string, ending *run.Ending) error {
	if ending.Outcome != session.OutcomeCancelled || ending.Reason != session.ReasonAborted {
		return nil
	}
	var err error
	ending.Reason, err = s.abortReason(ctx, runID)
	return err
}

// abortReason returns why a run that ends as aborted was interrupted.
func (s *sessionTx) abortReason(ctx context.Context, runID string) (string, error) {
	pending, err := s.q.CommandsPending(ctx, s, s.row.ID)
	if err != nil {
		return "", err
	}
	for _, c := range pending {
		if c.Kind == string(session.CommandAbort) && c.RunID == runID && c.Reason == session.ReasonSteered {
			return session.ReasonSteered, nil
		}
	}
	return session.ReasonAborted, nil
}
