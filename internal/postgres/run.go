package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/checkpoint"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/usage"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
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
		verdict = run.Verdict{}
		if generation != s.row.Generation {
			return illegal("generation %d is not the newest, which is %d", generation, s.row.Generation)
		}
		p, open, first, commands := c.prompt, c.open, c.first, c.commands
		if c.missing {
			return noPrompt(promptID)
		}
		if verdict, err = s.verdict(ctx, p, open, claimID); err != nil || verdict.Granted || verdict.HeldBy != "" ||
			verdict.Status != session.PromptQueued || session.State(s.row.Status).Final() {
			return err
		}
		if s.row.Status != string(session.Running) {
			return illegal("the session is %s, not running", s.row.Status)
		}
		for _, c := range commands {
			if kind := session.CommandKind(c.Kind); kind.BeforePrompts() {
				return illegal("a pending %s comes first", kind)
			}
		}
		if s.held() {
			verdict.Held = true
			return s.q.SessionWorkRead(ctx, &s.later, sessionID) // this answers the signal
		}
		if first.ID == "" { // still being collected: the end of the collection is signalled
			verdict.Held = true
			return s.q.SessionWorkRead(ctx, &s.later, sessionID)
		}
		if first.ID != p.ID {
			verdict.Earlier = &session.QueuedPrompt{ID: first.ID, Ordinal: first.Ordinal, Rank: first.Rank}
			return nil
		}
		run := dbsqlc.Run{ID: claimID, Generation: generation}
		if allotted {
			if err := s.newClaim(ctx, p, claimID); err != nil {
				return err
			}
			run.ID, run.ClaimID = claimOf(p, claimID), claimID
		}
		verdict.Granted, verdict.RunID, verdict.Dispatch, verdict.Status = true, run.ID, 1, session.PromptProcessing
		return s.claim(ctx, p, c.head, run, "")
	})
	if err != nil {
		return run.Verdict{}, err
	}
	if verdict.Granted {
		db.runs.remember(verdict.RunID, sessionID)
	}
	return verdict, nil
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
	prompt   dbsqlc.Prompt
	missing  bool // the prompt does not exist
	open     dbsqlc.Run
	first    dbsqlc.PromptFirstRow
	commands []dbsqlc.SessionCommand
	head     []dbsqlc.PromptHeadRow
}

func (c *claimable) read(ctx context.Context, q *dbsqlc.Queries, in *lookups, sessionID, promptID string) error {
	var promptErr, openErr, firstErr, commandsErr, headErr error
	c.prompt, promptErr = q.PromptGet(ctx, in, &dbsqlc.PromptGetParams{SessionID: sessionID, ID: promptID})
	if c.missing = isNoRows(promptErr); c.missing {
		promptErr = nil
	}
	if c.open, openErr = q.RunGetOpen(ctx, in, sessionID); isNoRows(openErr) {
		openErr = nil
	}
	if c.first, firstErr = q.PromptFirst(ctx, in, sessionID); isNoRows(firstErr) {
		firstErr = nil
	}
	c.commands, commandsErr = q.CommandsPending(ctx, in, sessionID)
	c.head, headErr = promptHead(ctx, q, in, sessionID)
	return cmp.Or(promptErr, openErr, firstErr, commandsErr, headErr)
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

// RunAttach makes token the attempt whose appends count and returns what the worker needs. It is
// idempotent for a token. From the second attempt on, a turn_start event reports that another
// worker continues the run. It returns illegal_state if the run has ended or belongs to an older
// generation, or if another attempt has it that is not older than by: an attempt that was paused
// before it attached must not take over. A previous attempt that did not report its end counts as
// lost: see run.Losses.
func (db *DB) RunAttach(ctx context.Context, runID, token string, by run.Dispatch) (start run.Start, err error) {
	err = db.inRun(ctx, "attach to a run", runID, func(s *sessionTx, claim dbsqlc.Run) error {
		if claim.Generation < s.row.Generation && claim.EndedAt == nil {
			return illegal("run %s belongs to generation %d, the newest is %d", runID, claim.Generation, s.row.Generation)
		}
		if claim.ParkedAt != nil {
			return illegal("run %s is parked", runID)
		}
		held := heldBy(claim)
		if claim.Token != token && !by.After(held) {
			return illegal("run %s is held by attempt %d of dispatch %d", runID, held.Attempt, held.No)
		}
		if claim.EndedAt == nil && claim.Token != token && claim.Attempt > 0 {
			err := s.add(event.TypeTurnStart, runID, event.TurnStartData{RunID: session.RunOf(runID), PromptID: claim.PromptID, Attempt: claim.Attempt + 1})
			if err != nil {
				return err
			}
		}
		losses := run.Losses{Frame: claim.LossesFrame, Points: int(claim.Losses)}
		if claim.Token != token {
			if claim.Attempt > 0 {
				losses = losses.After(run.Doing(claim.Doing), claim.LastFrame)
			}
			if claim.Doing != string(run.DoingRefused) {
				claim.Doing = string(run.DoingAttached)
			}
			if losses.Quarantine() {
				claim.Doing = string(run.DoingRefused)
			}
			claim.Losses, claim.LossesFrame = int32(losses.Points), losses.Frame
		}
		start, err = s.runTake(ctx, claim, token, claim.Attempt+1, by)
		start.Suspect = losses.Points > 0 && losses.Frame == claim.LastFrame
		start.Quarantine = claim.Doing == string(run.DoingRefused)
		return err
	})
	if err == nil {
		err = db.openState(&start.Run)
	}
	return start, err
}

// RunDoing records what the attempt with the token is doing with the run's frames. It changes
// nothing if another attempt has the run.
func (db *DB) RunDoing(ctx context.Context, runID, token string, doing run.Doing) error {
	err := db.q.RunDoing(ctx, db.pool, &dbsqlc.RunDoingParams{ID: runID, Token: token, Doing: string(doing)})
	return fault("record the progress of an attempt", err)
}

func heldBy(claim dbsqlc.Run) run.Dispatch {
	return run.Dispatch{No: claim.HeldDispatch, Attempt: claim.HeldAttempt}
}

// RunFence makes token the only valid one, so that no worker can append to the run any more, and
// returns the same as RunAttach. It accepts every generation and does not count as an attempt.
func (db *DB) RunFence(ctx context.Context, runID, token string) (start run.Start, err error) {
	err = db.inRun(ctx, "fence a run", runID, func(s *sessionTx, run dbsqlc.Run) error {
		start, err = s.runTake(ctx, run, token, run.Attempt, heldBy(run))
		return err
	})
	if err == nil {
		err = db.openState(&start.Run)
	}
	return start, err
}

func (s *sessionTx) runTake(ctx context.Context, claim dbsqlc.Run, token string, attempt int64, by run.Dispatch) (run.Start, error) {
	if claim.EndedAt != nil {
		return run.Start{}, illegal("run %s has ended", claim.ID)
	}
	if token == "" {
		return run.Start{}, failure.Errorf(failure.Invalid, "an attempt requires a token")
	}
	if claim.Token != token {
		err := s.q.RunAttach(ctx, &s.later, &dbsqlc.RunAttachParams{
			ID: claim.ID, Token: token, Attempt: attempt, HeldDispatch: by.No, HeldAttempt: by.Attempt,
			Doing: claim.Doing, Losses: claim.Losses, LossesFrame: claim.LossesFrame,
		})
		if err != nil {
			return run.Start{}, err
		}
		claim.Token, claim.Attempt, claim.HeldDispatch, claim.HeldAttempt = token, attempt, by.No, by.Attempt
	}
	return s.runStart(ctx, claim)
}

// runStart reads what a worker needs in one round trip, since a prompt waits for it.
func (s *sessionTx) runStart(ctx context.Context, claim dbsqlc.Run) (run.Start, error) {
	var of surroundings
	var prompt dbsqlc.Prompt
	var in lookups
	err := in.also(ctx, s.Conn, func(in *lookups) (err error) {
		prompt, err = s.q.PromptGet(ctx, in, &dbsqlc.PromptGetParams{SessionID: s.row.ID, ID: claim.PromptID})
		if isNoRows(err) {
			err = noPrompt(claim.PromptID)
		}
		return cmp.Or(err, of.read(ctx, s.q, in, s.row.ID, claim.Generation, claim.ID))
	})
	if err != nil {
		return run.Start{}, err
	}
	return s.startOf(ctx, claim, prompt, of)
}

// surroundings is what a worker needs for a run in addition to the run and its prompt.
type surroundings struct {
	dbsqlc.RunSurroundingsRow
	transcripts []transcript.Position
}

// read excludes the run with the given id, which need not exist yet, from the runs that the agent
// has received.
func (o *surroundings) read(ctx context.Context, q *dbsqlc.Queries, in *lookups, sessionID string, generation int64, runID string) error {
	var rowErr, transcriptsErr error
	o.RunSurroundingsRow, rowErr = q.RunSurroundings(ctx, in, &dbsqlc.RunSurroundingsParams{SessionID: sessionID, ID: runID, Generation: generation})
	o.transcripts, transcriptsErr = transcriptPositions(ctx, q, in, sessionID)
	return cmp.Or(rowErr, transcriptsErr)
}

// startOf combines a run with its surroundings.
func (s *sessionTx) startOf(ctx context.Context, claim dbsqlc.Run, prompt dbsqlc.Prompt, of surroundings) (start run.Start, err error) {
	start = run.Start{
		Run: runOf(claim), Generation: s.row.Generation, Prompt: promptOf(prompt), SandboxID: of.SandboxID, Resume: of.Reached,
		Transcripts: of.transcripts,
		Files:       workspacefile.Position{Session: s.row.ID, Lineage: of.Lineage, Seq: of.Seq, Base: of.Base, DiffKey: of.DiffKey},
	}
	if start.Receipt, err = receiptOf(of.Receipt); err != nil {
		return start, err
	}
	joined, err := s.joinedTo(ctx, prompt)
	if err != nil {
		return start, err
	}
	joinInto(&start.Prompt, joined)
	if of.HandedFrom != "" {
		if start.HandOff, err = s.handOff(ctx, claim.BeganSeq); err != nil {
			return start, err
		}
	}
	start.Agent, start.MemoryID = of.Agent, cmp.Or(of.MemoryID, s.row.ID)
	if err := json.Unmarshal(of.Options, &start.Options); err != nil {
		return start, err
	}
	return start, s.profileInto(ctx, of.Profile, &start)
}

// RunOpen returns the id of the session's open run; "" if there is none.
func (db *DB) RunOpen(ctx context.Context, sessionID string) (string, error) {
	run, err := db.q.RunGetOpen(ctx, db.pool, sessionID)
	if isNoRows(err) {
		return "", nil
	}
	return run.ID, fault("find the open run", err)
}

// RunGet returns a run.
func (db *DB) RunGet(ctx context.Context, runID string) (run.Run, error) {
	claim, err := db.q.RunGet(ctx, db.pool, runID)
	if isNoRows(err) {
		return run.Run{}, noRun(runID)
	}
	if err != nil {
		return run.Run{}, fault("read a run", err)
	}
	out := runOf(claim)
	return out, db.openState(&out)
}

// RunEnd gives run and prompt their outcome with the events turn_end, prompt and queue, and updates
// the session's usage. It returns the outcome of a run that has already ended unchanged. A token
// that is not that of the newest attempt is illegal_state; an empty token ends the run
// unconditionally, and fences the attempt that holds its token. A segment of a transcript that leaves
// a gap is also illegal_state. After an error nothing is written.
func (db *DB) RunEnd(ctx context.Context, ending run.Ending) (ended run.Run, err error) {
	const doing = "end a run"
	ctx, cancel := within(ctx, db.options.CallTimeout)
	defer cancel()
	sessionID, err := db.runSession(ctx, doing, ending.RunID)
	if err != nil {
		return ended, err
	}
	var c closing
	var was storedTranscripts
	read := func(in *lookups) error {
		err := c.read(ctx, db.q, in, sessionID, ending.RunID)
		if len(ending.Segments) > 0 {
			err = cmp.Or(err, was.read(ctx, db.q, in, sessionID, ending.Segments))
		}
		return err
	}
	err = db.inSessionWith(ctx, doing, sessionID, read, func(s *sessionTx) error {
		if err := s.transcriptAppend(ctx, db, db.options.Transcripts, ending.Segments, was); err != nil {
			return err
		}
		if c.Run.EndedAt != nil {
			ended = runOf(c.Run)
			return nil
		}
		if ending.Token != "" && ending.Token != c.Run.Token {
			return illegal("another attempt has run %s", c.Run.ID)
		}
		ended, err = s.runEnd(ctx, c, ending)
		return err
	})
	return ended, err
}

// closing is a run that is about to end, its prompt and the head of the queue before its end, and
// whether anything else ends with it.
type closing struct {
	dbsqlc.RunClosingRow
	head []dbsqlc.PromptHeadRow
}

func (c *closing) read(ctx context.Context, q *dbsqlc.Queries, in *lookups, sessionID, runID string) error {
	var rowErr, headErr error
	if c.RunClosingRow, rowErr = q.RunClosing(ctx, in, runID); isNoRows(rowErr) {
		rowErr = noRun(runID)
	}
	c.head, headErr = promptHead(ctx, q, in, sessionID)
	return cmp.Or(rowErr, headErr)
}

// alone reports whether only the run and its prompt end, and nothing waits in the queue.
func (c *closing) alone() bool {
	return !c.Writes && !c.Asks && !c.Commanded && c.Run.Steers == 0 && c.Prompt.Mode != string(session.Collect) && headOf(c.head).Queued == 0
}

func (s *sessionTx) runEnd(ctx context.Context, c closing, ending run.Ending) (run.Run, error) {
	claim := c.Run
	if err := cmp.Or(s.abortLost(ctx, claim.ID, &ending), s.shutDown(ctx, claim, &ending), s.steered(ctx, claim.ID, &ending)); err != nil {
		return run.Run{}, err
	}
	ending.Usage = withParked(claim, ending.Usage.Bounded())
	requeue := ending.Requeue && !session.State(s.row.Status).Final()
	steers, err := s.steersEnd(ctx, claim, ending, requeue)
	if err != nil {
		return run.Run{}, err
	}
	closed, err := s.runClose(ctx, c, ending, requeue)
	if err != nil {
		return run.Run{}, err
	}
	if err := s.settleBlocks(ctx, closed.live); err != nil {
		return run.Run{}, err
	}
	if err := s.addQuestionsClosed(claim.ID, closed.questions); err != nil {
		return run.Run{}, err
	}
	if requeue {
		if err := s.reportTurnEnd(closed.run); err != nil {
			return run.Run{}, err
		}
		if err := s.promptQueue(ctx, claim.PromptID, ""); err != nil {
			return run.Run{}, err
		}
		ended := runOf(closed.run)
		ended.Ended = &run.Ended{Agent: s.row.Agent, QueueWait: -1}
		return ended, s.count(ctx, ending.Usage, "")
	}
	closed.steers = steers
	if err := s.reportEnd(ctx, closed, ending); err != nil {
		return run.Run{}, err
	}
	if err := s.checkpointDue(ctx, &closed, ending); err != nil {
		return run.Run{}, err
	}
	ended := runOf(closed.run)
	ended.Ended = &run.Ended{Agent: s.row.Agent, QueueWait: max(0, ended.StartedAt.Sub(closed.prompt.CreatedAt)), RequestID: closed.prompt.RequestID}
	attendant := ""
	if ending.LookFor != "" {
		found := closed.look.found(s)
		ended.Look = &found
		// Usually there is nothing to record: the claim has answered the signal, and no command is
		// pending.
		if s.row.SignalledAt != nil || !s.row.Loaded || len(found.Commands) > 0 {
			if err := s.recordRead(ctx, ending.LookFor); err != nil {
				return run.Run{}, err
			}
		}
		if ended.Attended = s.attendable(closed.run, ending, found) && len(closed.aborts) == 0; ended.Attended {
			attendant = ending.Attend
		}
	}
	return ended, s.count(ctx, ending.Usage, attendant)
}

// closedRun is a run that has ended, with the rows that ended with it. A run that is queued again
// has neither prompt, aborts nor head.
type closedRun struct {
	run       dbsqlc.Run
	live      []dbsqlc.Block // that were open
	questions []string       // that were open
	prompt    dbsqlc.Prompt
	aborts    []dbsqlc.SessionCommand
	head      []dbsqlc.PromptHeadRow // of the queue
	look      looking                // if the ending requests it
	saves     checkpointPolicy
	steers    []dbsqlc.Prompt // given to the turn, in their new state
}

// runClose ends a run, with everything that ends with it. Usually that is only its prompt, whose row
// has been read: both are then written with the events.
func (s *sessionTx) runClose(ctx context.Context, c closing, ending run.Ending, requeue bool) (closed closedRun, err error) {
	reason := text(ending.Reason)
	end := dbsqlc.RunEndParams{
		ID: c.Run.ID, Outcome: string(ending.Outcome), Reason: reason, Model: text(ending.Model),
		InputTokens: ending.Usage.InputTokens, OutputTokens: ending.Usage.OutputTokens,
		CostUsd: ending.Usage.Cost(), ToolCalls: ending.Usage.ToolCalls, At: s.now,
	}
	closed.run = runEnded(c.Run, &end)
	if err := s.q.RunEnd(ctx, &s.later, &end); err != nil {
		return closed, err
	}
	if !requeue {
		closed.prompt, err = s.promptClose(ctx, c.Prompt, ending.Outcome.PromptStatus(), reason)
		if err != nil {
			return closed, err
		}
		if ending.Token != "" {
			closed.saves = checkpointPolicy{policy: checkpoint.Policy(c.Policy), newest: orZero(c.Newest)}
		}
		if c.alone() {
			closed.head = withoutPrompt(c.head, c.Prompt.ID)
			return closed, nil
		}
	}
	if err := s.sendLater(ctx); err != nil { // the queries read what it changes
		return closed, err
	}
	var in lookups
	err = in.also(ctx, s.Conn, func(in *lookups) error {
		var liveErr, questionsErr, abortsErr, headErr, lookErr error
		closed.live, liveErr = s.q.BlocksLive(ctx, in, s.row.ID)
		closed.questions, questionsErr = s.q.QuestionsClose(ctx, in, &dbsqlc.QuestionsCloseParams{RunID: c.Run.ID, Reason: question.ReasonTurnEnded, At: s.now})
		if requeue {
			return cmp.Or(liveErr, questionsErr)
		}
		closed.aborts, abortsErr = s.abortsClose(ctx, in, c.Run.ID, ending.Outcome, reason)
		closed.head, headErr = promptHead(ctx, s.q, in, s.row.ID)
		if ending.LookFor != "" {
			lookErr = closed.look.read(ctx, s.q, in, s.row.ID)
		}
		return cmp.Or(liveErr, questionsErr, abortsErr, headErr, lookErr)
	})
	return closed, err
}

// runEnded returns the row of a run as RunEnd changes it.
func runEnded(row dbsqlc.Run, end *dbsqlc.RunEndParams) dbsqlc.Run {
	row.Outcome, row.Reason, row.Model, row.Token, row.Translator = end.Outcome, end.Reason, end.Model, "", nil
	row.InputTokens, row.OutputTokens, row.CostUsd, row.ToolCalls, row.EndedAt = end.InputTokens, end.OutputTokens, end.CostUsd, end.ToolCalls, &end.At
	return row
}

// promptClose ends a prompt whose row has been read, and returns the row as it becomes.
func (s *sessionTx) promptClose(ctx context.Context, row dbsqlc.Prompt, status session.PromptStatus, reason string) (dbsqlc.Prompt, error) {
	if row.Status != string(session.PromptQueued) && row.Status != string(session.PromptProcessing) {
		return row, failure.Errorf(failure.Internal, "the prompt %s of an open run is %s", row.ID, row.Status)
	}
	row.Status, row.Reason, row.EndedAt, row.CollectUntil = string(status), reason, &s.now, nil
	return row, s.q.PromptClose(ctx, &s.later, &dbsqlc.PromptCloseParams{
		SessionID: row.SessionID, ID: row.ID, Status: row.Status, Reason: reason, At: s.now,
	})
}

// withoutPrompt returns the head of a queue after a processing prompt has left it.
func withoutPrompt(head []dbsqlc.PromptHeadRow, promptID string) []dbsqlc.PromptHeadRow {
	left := slices.DeleteFunc(slices.Clone(head), func(p dbsqlc.PromptHeadRow) bool { return p.ID == promptID })
	for i := range left {
		left[i].Processing -= int64(len(head) - len(left))
	}
	return left
}

// reportEnd adds the events of a run that has ended and is not queued again.
func (s *sessionTx) reportEnd(ctx context.Context, closed closedRun, ending run.Ending) error {
	p := closed.prompt
	if ending.Outcome == session.OutcomeCompleted {
		if err := s.titleFrom(ctx, p.Content); err != nil {
			return err
		}
	}
	if err := s.reportTurnEnd(closed.run); err != nil {
		return err
	}
	for _, row := range closed.aborts {
		if err := s.commandEvent(row); err != nil {
			return err
		}
	}
	if err := s.addPrompt(p); err != nil {
		return err
	}
	removed := []event.QueueChange{queueChange(event.QueueRemoved, itemOf(p))}
	steers, err := s.reportSteers(closed.steers)
	if err != nil {
		return err
	}
	removed = append(removed, steers...)
	if p.Mode != string(session.Collect) {
		return s.addQueue(headOf(closed.head), removed...)
	}
	joined, err := s.joinedEnd(ctx, p)
	if err != nil {
		return err
	}
	return s.reportQueue(ctx, append(removed, joined...)...)
}

// count adds a turn to the session's usage, and sets its attendant. The events of the turn's end
// must have been added before.
func (s *sessionTx) count(ctx context.Context, u usage.Usage, attendant string) error {
	s.advanced = s.row.LastSeq
	return s.q.SessionCount(ctx, &s.later, &dbsqlc.SessionCountParams{
		ID: s.row.ID, LastSeq: s.row.LastSeq, ToolCalls: u.ToolCalls, InputTokens: u.InputTokens, OutputTokens: u.OutputTokens,
		CostUsd: u.Cost(), At: s.now, Attendant: attendant,
	})
}

// abortLost ends a run with an unknown outcome as aborted if a pending abort names it: the run has
// ended, and the abort means that it must not be retried.
func (s *sessionTx) abortLost(ctx context.Context, runID string, ending *run.Ending) error {
	if ending.Outcome != session.OutcomeUnknown {
		return nil
	}
	pending, err := s.q.CommandsPending(ctx, s, s.row.ID)
	if err != nil {
		return err
	}
	for _, c := range pending {
		if c.Kind == string(session.CommandAbort) && c.RunID == runID {
			ending.Outcome, ending.Reason, ending.Requeue = session.OutcomeCancelled, session.ReasonAborted, false
		}
	}
	return nil
}

// shutDown sets the reason of a run that was interrupted because the installation stops, unless a
// client aborted it. Its prompt runs again if that is its policy for an unknown outcome: the agent
// may have done a part of the work.
func (s *sessionTx) shutDown(ctx context.Context, run dbsqlc.Run, ending *run.Ending) error {
	if ending.Outcome != session.OutcomeCancelled || ending.Reason != session.ReasonAborted {
		return nil
	}
	pending, err := s.q.CommandsPending(ctx, s, s.row.ID)
	if err != nil {
		return err
	}
	stops := false
	for _, c := range commandsOf(pending) {
		switch {
		case c.Kind == session.CommandAbort && c.RunID == run.ID:
			return nil
		case c.Kind == session.CommandHibernate && c.Force && c.Reason == session.ReasonShutdown:
			stops = true
		}
	}
	if !stops {
		return nil
	}
	p, err := s.promptGet(ctx, run.PromptID)
	if err != nil {
		return err
	}
	ending.Reason, ending.Requeue = session.ReasonShutdown, p.OnUnknown == string(session.Retry)
	return nil
}

// titleFrom gives a session without a title the beginning of a prompt: of its first one or, for
// sessions of earlier releases, of the first completed one.
func (s *sessionTx) titleFrom(ctx context.Context, content string) error {
	title := session.TitleOf(content)
	if s.row.Title != "" || title == "" {
		return nil
	}
	s.row.Title = title
	if err := s.q.SessionSetTitle(ctx, &s.later, &dbsqlc.SessionSetTitleParams{ID: s.row.ID, Title: title}); err != nil {
		return err
	}
	return s.add(string(conversation.EventTitle), "", conversation.Title{Title: title})
}

// RunReturn returns the prompt of a run that never reached the agent to its place in the queue and
// reports whether it is queued. The run ends as cancelled, and its id cannot be used again. With
// untouched, a run to which an attempt has attached is left unchanged. RunReturn does nothing if
// the run has already ended, and returns illegal_state if the run has frames, since the agent may
// have done the work.
func (db *DB) RunReturn(ctx context.Context, runID, reason string, untouched bool) (queued bool, err error) {
	err = db.inRun(ctx, "return a run", runID, func(s *sessionTx, run dbsqlc.Run) error {
		if run.EndedAt != nil {
			p, err := s.promptGet(ctx, run.PromptID)
			queued = p.Status == string(session.PromptQueued)
			return err
		}
		if untouched && run.Attempt > 0 {
			return nil
		}
		if run.LastFrame >= 0 {
			return illegal("run %s has reached the agent", runID)
		}
		end := dbsqlc.RunEndParams{ID: runID, Outcome: string(session.OutcomeCancelled), Reason: text(reason), At: s.now}
		if err := s.q.RunEnd(ctx, s, &end); err != nil {
			return err
		}
		if err := s.reportTurnEnd(runEnded(run, &end)); err != nil {
			return err
		}
		why, err := s.abortReason(ctx, runID)
		if err != nil {
			return err
		}
		aborted, err := s.abortsEnd(ctx, runID, session.OutcomeCancelled, why)
		if err != nil {
			return err
		}
		if aborted > 0 { // the abort does not apply to a later run
			return s.promptAborted(ctx, run.PromptID, why)
		}
		queued = true
		return s.promptQueue(ctx, run.PromptID, text(reason))
	})
	return queued && err == nil, err
}

func (s *sessionTx) promptAborted(ctx context.Context, promptID, reason string) error {
	p, err := s.q.PromptEnd(ctx, s, &dbsqlc.PromptEndParams{
		SessionID: s.row.ID, ID: promptID, Status: string(session.PromptCancelled), Reason: reason, At: s.now,
	})
	if err != nil {
		return err
	}
	if err := s.addPrompt(p); err != nil {
		return err
	}
	joined, err := s.joinedEnd(ctx, p)
	if err != nil {
		return err
	}
	return s.reportQueue(ctx, append([]event.QueueChange{queueChange(event.QueueRemoved, itemOf(p))}, joined...)...)
}

func (s *sessionTx) reportTurnEnd(run dbsqlc.Run) error {
	usage := resource.Usage(usageOf(run))
	return s.add(event.TypeTurnEnd, run.ID, event.TurnEndData{
		RunID: session.RunOf(run.ID), PromptID: run.PromptID, Outcome: session.Outcome(run.Outcome), Reason: run.Reason, Usage: &usage, Model: run.Model,
	})
}

func usageOf(row dbsqlc.Run) usage.Usage {
	u := usage.Usage{InputTokens: row.InputTokens, OutputTokens: row.OutputTokens, ToolCalls: row.ToolCalls, CostUnknown: row.CostUsd == nil}
	if row.CostUsd != nil {
		u.CostUSD = *row.CostUsd
	}
	return u
}

func runOf(row dbsqlc.Run) run.Run {
	r := run.Run{
		ID: row.ID, SessionID: row.SessionID, PromptID: row.PromptID, Generation: row.Generation,
		Attempt: row.Attempt, Part: row.Part, FrameBase: row.FrameBase, Parked: row.ParkedAt != nil, Held: heldBy(row), Token: row.Token, LastFrame: row.LastFrame, Translator: row.Translator,
		Outcome: session.Outcome(row.Outcome), Reason: row.Reason,
		StartedAt: row.StartedAt.UTC(), EndedAt: orZero(row.EndedAt),
	}
	if row.EndedAt != nil {
		r.Usage = usageOf(row)
	}
	return r
}
