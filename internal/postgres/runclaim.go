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

// RunBegin claims a prompt for a run: it moves the prompt from queued to processing in one
// statement, with the events turn_start, prompt and queue. It is idempotent for a run id while the
// run is open. It does not grant the claim if the prompt has ended, another run has it, another
// prompt of the session is processing, an earlier one is queued, or the queue is held; the verdict
// gives the reason. It returns illegal_state if the generation is not the session's newest, the
// session is not running, or a pending command must be executed first: the workflow then reads the
// session again.
func (db *DB) RunBegin(ctx context.Context, sessionID, promptID, runID string, generation int64) (run.Verdict, error) {
	return db.runBegin(ctx, sessionID, promptID, runID, generation, false)
}

// RunBeginAllotted is RunBegin for a run with the id that was allotted to the prompt, or with the
// id of a later claim; the verdict contains it. It is idempotent for a claim.
func (db *DB) RunBeginAllotted(ctx context.Context, sessionID, promptID, claimID string, generation int64) (run.Verdict, error) {
	return db.runBegin(ctx, sessionID, promptID, claimID, generation, true)
}

func (db *DB) runBegin(ctx context.Context, sessionID, promptID, claimID string, generation int64, allotted bool) (verdict run.Verdict, err error) {
	var c claimable
	read := func(in *lookups) error { return c.read(ctx, db.q, in, sessionID, promptID) }
	err = db.inSessionWith(ctx, "begin a run", sessionID, read, func(s *sessionTx) (err error) {
		verdict, err = s.begin(ctx, &c, claimID, generation, allotted)
		if err == nil && verdict.Held {
			err = s.q.SessionWorkRead(ctx, &s.later, sessionID) // this answers the signal
		}
		return err
	})
	if err != nil {
		return run.Verdict{}, err
	}
	if verdict.Granted {
		db.runs.remember(verdict.RunID, runKey{sessionID: sessionID, promptID: promptID, generation: generation})
	}
	return verdict, nil
}

// RunOfClaim returns the run that a claim was granted. It reports false if there is none yet, or none
// of the session's newest 128 runs.
func (db *DB) RunOfClaim(ctx context.Context, sessionID, claimID string) (run.Located, bool, error) {
	const doing = "find the run of a claim"
	ctx, cancel := within(ctx, db.options.CallTimeout)
	defer cancel()
	row, err := db.q.RunOfClaim(ctx, db.pool, &dbsqlc.RunOfClaimParams{SessionID: sessionID, ClaimID: claimID})
	if isNoRows(err) {
		return run.Located{}, false, nil
	}
	if err != nil {
		return run.Located{}, false, fault(doing, err)
	}
	db.runs.remember(row.ID, runKey{sessionID: sessionID, promptID: row.PromptID, generation: row.Generation})
	return run.Located{
		RunID: row.ID, PromptID: row.PromptID, Dispatch: row.Dispatch, Generation: row.Generation,
		SandboxID: row.SandboxID, Since: row.ReservedAt.UTC(), Deadline: orZero(row.Deadline),
		OnUnknown: session.OnUnknown(row.OnUnknown),
	}, true, nil
}

// begin claims a prompt for a run, unless the verdict says who has it or what precedes it. If the
// error is illegal_state or prompt_not_found, nothing has changed.
func (s *sessionTx) begin(ctx context.Context, c *claimable, claimID string, generation int64, allotted bool) (run.Verdict, error) {
	if generation != s.row.Generation {
		return run.Verdict{}, illegal("generation %d is not the newest, which is %d", generation, s.row.Generation)
	}
	if c.missing {
		return run.Verdict{}, noPrompt(c.promptID)
	}
	p := c.prompt
	verdict, err := s.verdict(ctx, p, c.open, claimID)
	if err != nil || verdict.Granted || verdict.HeldBy != "" ||
		verdict.Status != session.PromptQueued || session.State(s.row.Status).Final() {
		return verdict, err
	}
	if s.row.Status != string(session.Running) {
		return verdict, illegal("the session is %s, not running", s.row.Status)
	}
	for _, c := range c.commands {
		if kind := session.CommandKind(c.Kind); kind.BeforePrompts() {
			return verdict, illegal("a pending %s comes first", kind)
		}
	}
	switch {
	case s.held(), c.first.ID == "": // without a first one, it is still being collected: the end of the collection is signalled
		verdict.Held = true
		return verdict, nil
	case c.first.ID != p.ID:
		verdict.Earlier = &session.QueuedPrompt{ID: c.first.ID, Ordinal: c.first.Ordinal, Rank: c.first.Rank}
		return verdict, nil
	}
	run := dbsqlc.Run{ID: claimID, Generation: generation}
	if allotted {
		if err := s.newClaim(ctx, p, claimID); err != nil {
			return verdict, err
		}
		run.ID, run.ClaimID = claimOf(p, claimID), claimID
	}
	verdict.Granted, verdict.RunID, verdict.Dispatch, verdict.Status = true, run.ID, 1, session.PromptProcessing
	return verdict, s.claim(ctx, p, c.head, run, "")
}

// newClaim refuses a claim that was granted before and whose run has ended: no workflow waits for
// its result.
func (s *sessionTx) newClaim(ctx context.Context, p dbsqlc.Prompt, claimID string) error {
	if p.Claims == 0 {
		return nil
	}
	last, err := s.q.RunGet(ctx, s, session.ClaimID(p.AllottedRunID, int(p.Claims)))
	if isNoRows(err) { // from the previous release
		return nil
	}
	if err == nil && last.ClaimID == claimID {
		return illegal("run %s, which the claim was granted, has ended", last.ID)
	}
	return err
}

// claimOf returns the id of the next claim of a prompt. A prompt of an earlier release has no
// allotted run: it gets the proposed id.
func claimOf(p dbsqlc.Prompt, proposed string) string {
	if p.AllottedRunID == "" {
		return proposed
	}
	return session.ClaimID(p.AllottedRunID, int(p.Claims)+1)
}

// claim gives a queued prompt to a new run, whose id, generation and attempt (if one has attached)
// are given. The session gets the run's attendant; "" for none.
func (s *sessionTx) claim(ctx context.Context, p dbsqlc.Prompt, head []dbsqlc.PromptHeadRow, run dbsqlc.Run, attendant string) error {
	err := s.q.PromptClaim(ctx, &s.later, &dbsqlc.PromptClaimParams{SessionID: s.row.ID, ID: p.ID, RunID: run.ID, At: s.now})
	if err != nil {
		return err
	}
	p.Status, p.RunID, p.Reason, p.StartedAt = string(session.PromptProcessing), run.ID, "", &s.now
	p.JoinedTo, p.CollectUntil, p.AllottedRunID = "", nil, cmp.Or(p.AllottedRunID, run.ID)
	var joined []dbsqlc.Prompt
	if p.Mode == string(session.Collect) {
		joined, err = s.q.PromptsJoinedClaim(ctx, s, &dbsqlc.PromptsJoinedClaimParams{SessionID: s.row.ID, ID: p.ID, RunID: run.ID, At: s.now})
		if err != nil {
			return err
		}
	}
	err = s.q.RunInsert(ctx, &s.later, &dbsqlc.RunInsertParams{
		ID: run.ID, SessionID: s.row.ID, PromptID: p.ID, Generation: run.Generation, Dispatch: 1,
		BeganSeq:  s.row.LastSeq + 1, // position of its turn_start
		StartedAt: s.now,
		Token:     run.Token, Attempt: run.Attempt, HeldDispatch: run.HeldDispatch, HeldAttempt: run.HeldAttempt, Doing: run.Doing,
		ClaimID: run.ClaimID,
	})
	if err != nil {
		return err
	}
	s.run = run.ID
	if err := s.add(event.TypeTurnStart, run.ID, event.TurnStartData{RunID: session.RunOf(run.ID), PromptID: p.ID, Attempt: 1}); err != nil {
		return err
	}
	if err := s.addPrompt(p); err != nil {
		return err
	}
	changes, err := s.reportJoined(joined, event.QueueUpdated)
	if err != nil {
		return err
	}
	changes = append([]event.QueueChange{queueChange(event.QueueUpdated, itemOf(p))}, changes...)
	queue := headOf(head)
	moved := int64(len(changes))
	queue.Queued, queue.Processing = queue.Queued-moved, queue.Processing+moved
	for i := range queue.Items {
		if slices.ContainsFunc(changes, func(c event.QueueChange) bool { return c.PromptID == queue.Items[i].PromptID }) {
			queue.Items[i].Status = session.PromptProcessing
		}
	}
	if err := s.addQueue(queue, changes...); err != nil {
		return err
	}
	s.advanced = s.row.LastSeq
	return s.q.SessionClaimed(ctx, &s.later, &dbsqlc.SessionClaimedParams{ID: s.row.ID, LastSeq: s.row.LastSeq, At: s.now, Attendant: attendant})
}

// claimable has the data that decides about a claim: the prompt, the session's open run and its
// first queued prompt, each zero if there is none, the pending commands, and the head of the queue.
type claimable struct {
	promptID string
	prompt   dbsqlc.Prompt
	missing  bool // the prompt does not exist
	open     dbsqlc.Run
	first    dbsqlc.PromptFirstRow
	commands []dbsqlc.SessionCommand
	head     []dbsqlc.PromptHeadRow
}

// verdict returns who has the prompt. A queued prompt is blocked by the run of another prompt of
// the session: only one turn runs at a time.
func (s *sessionTx) verdict(ctx context.Context, p dbsqlc.Prompt, open dbsqlc.Run, claimID string) (run.Verdict, error) {
	v := run.Verdict{Status: session.PromptStatus(p.Status), OnUnknown: session.OnUnknown(p.OnUnknown)}
	holder := open
	if v.Status != session.PromptQueued {
		var err error
		holder, err = s.q.RunGet(ctx, s, p.RunID)
		if err != nil && !isNoRows(err) {
			return v, err
		}
	}
	if holder.ID == "" {
		return v, nil
	}
	if v.Status == session.PromptProcessing && (holder.ID == claimID || holder.ClaimID == claimID) {
		v.Granted, v.RunID, v.Dispatch = true, holder.ID, holder.Dispatch
		return v, nil
	}
	v.HeldBy, v.Generation = holder.ID, holder.Generation
	return v, nil
}
