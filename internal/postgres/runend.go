package postgres

import (
	"cmp"
	"context"
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
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// RunEnd gives run and prompt their outcome with the events turn_end, prompt and queue, and updates
// the session's usage. It returns the outcome of a run that has already ended unchanged. A token
// that is not that of the newest attempt is illegal_state; an empty token ends the run
// unconditionally, and fences the attempt that holds its token. A segment of a transcript that leaves
// a gap is also illegal_state. After an error nothing is written.
func (db *DB) RunEnd(ctx context.Context, ending run.Ending) (ended run.Run, err error) {
	const doing = "end a run"
	ctx, cancel := within(ctx, db.options.CallTimeout)
	defer cancel()
	key, err := db.runKey(ctx, doing, ending.RunID)
	if err != nil {
		return ended, err
	}
	sessionID := key.sessionID
	var c closing
	var was storedTranscripts
	last, err := db.lastAppend(ending)
	if err != nil {
		return ended, err
	}
	read := func(in *lookups) error {
		err := cmp.Or(c.read(ctx, db.q, in, sessionID, ending.RunID), last.read(ctx, in))
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
		if err := last.write(ctx, s, &c); err != nil {
			return err
		}
		if ending.Token != "" && c.alone() {
			s.from = inTurn
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

// alone reports whether only the run and its prompt end, and nothing waits in the queue.
func (c *closing) alone() bool {
	return len(c.Writes) == 0 && !c.Asks && !c.Commanded && c.Run.Steers == 0 && c.Prompt.Mode != string(session.Collect) && headOf(c.head).Queued == 0
}

func (s *sessionTx) runEnd(ctx context.Context, c closing, ending run.Ending) (run.Run, error) {
	claim := c.Run
	s.run = claim.ID
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
	if ending.RecheckFor != "" {
		found := closed.look.found(s)
		ended.Look = &found
		// Usually no read must be recorded: the claim has answered the signal, and no command is
		// pending.
		if s.row.SignalledAt != nil || !s.row.Loaded || len(found.Commands) > 0 {
			if err := s.recordRead(ctx, ending.RecheckFor); err != nil {
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
		ID: c.Run.ID, Outcome: string(ending.Outcome), Reason: reason, Model: text(ending.Model), LastFrame: c.Run.LastFrame,
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
	if err := s.sendLater(ctx); err != nil { // the queries read rows that it changes
		return closed, err
	}
	var in lookups
	err = in.also(ctx, s.Conn, func(in *lookups) error {
		var liveErr, questionsErr, abortsErr, headErr, lookErr error
		closed.live, liveErr = s.q.BlocksLive(ctx, in, &dbsqlc.BlocksLiveParams{SessionID: s.row.ID, Since: c.Run.BeganSeq})
		closed.questions, questionsErr = s.q.QuestionsClose(ctx, in, &dbsqlc.QuestionsCloseParams{RunID: c.Run.ID, Reason: question.ReasonTurnEnded, At: s.now})
		if requeue {
			return cmp.Or(liveErr, questionsErr)
		}
		closed.aborts, abortsErr = s.abortsClose(ctx, in, c.Run.ID, ending.Outcome, reason)
		closed.head, headErr = promptHead(ctx, s.q, in, s.row.ID)
		if ending.RecheckFor != "" {
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
		end := dbsqlc.RunEndParams{ID: runID, Outcome: string(session.OutcomeCancelled), Reason: text(reason), LastFrame: run.LastFrame, At: s.now}
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
