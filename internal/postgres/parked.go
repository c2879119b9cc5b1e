package postgres

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// RunPark parks a run whose agent only waits for people, and reports whether it did. The attempt
// then ends, and the session may sleep while the run stays open. RunPark does not park the run if a
// question has an answer that the agent has not received, if a command interrupts the run, or if
// the session is not running in the run's sandbox; nor, unless AtWork is set, if a tool call or a
// subagent is working that does not depend on the questions. It is idempotent. It returns
// illegal_state if the token is not that of the newest attempt.
func (db *DB) RunPark(ctx context.Context, p run.Parking) (parked bool, err error) {
	err = db.inRun(ctx, "park a run", p.RunID, func(s *sessionTx, run dbsqlc.Run) error {
		parked = run.ParkedAt != nil
		switch {
		case run.EndedAt != nil || parked:
			return nil
		case p.Token == "" || p.Token != run.Token:
			return illegal("another attempt has run %s", run.ID)
		case s.row.Status != string(session.Running) || run.Generation != s.row.Generation:
			return nil
		}
		pending, err := s.q.CommandsPending(ctx, s, s.row.ID)
		interrupts := func(c session.Command) bool {
			return c.Force || c.Kind == session.CommandStop || c.Kind == session.CommandAbort
		}
		if err != nil || slices.ContainsFunc(commandsOf(pending), interrupts) {
			return err
		}
		waits, err := s.waitsForPeople(ctx, run, p.AtWork)
		if err != nil || !waits {
			return err
		}
		if _, err := s.q.QuestionsPark(ctx, s, &dbsqlc.QuestionsParkParams{RunID: run.ID, Part: run.Part + 1}); err != nil {
			return err
		}
		used, err := s.partUsage(ctx, run)
		if err != nil {
			return err
		}
		err = s.q.RunPark(ctx, &s.later, &dbsqlc.RunParkParams{
			ID: run.ID, At: s.now, InputTokens: used.InputTokens, OutputTokens: used.OutputTokens, ToolCalls: used.ToolCalls, CostUsd: used.Cost(),
		})
		if err != nil {
			return err
		}
		parked = true
		return s.q.SessionLeave(ctx, &s.later, s.row.ID)
	})
	return parked && err == nil, err
}

// partUsage returns the usage of the current part of a run, as reported by its agent. Without a
// report the cost is unknown.
func (s *sessionTx) partUsage(ctx context.Context, run dbsqlc.Run) (usage.Usage, error) {
	since := run.BeganSeq
	if run.Part > 0 {
		since = run.PartSeq
	}
	row, err := s.q.PartUsage(ctx, s, &dbsqlc.PartUsageParams{SessionID: s.row.ID, AfterSeq: since})
	if err != nil {
		return usage.Usage{}, err
	}
	used := usage.Usage{ToolCalls: row.ToolCalls, CostUnknown: true}
	var reported conversation.MetadataUpdate
	if row.Reported != "" && json.Unmarshal([]byte(row.Reported), &reported) == nil {
		used.InputTokens, used.OutputTokens = reported.Usage.InputTokens, reported.Usage.OutputTokens
		if reported.CostUSD != nil {
			used.CostUSD, used.CostUnknown = *reported.CostUSD, false
		}
	}
	return used.Bounded(), nil
}

// withParked adds the usage of the parts of a run that ended when it was parked.
func withParked(run dbsqlc.Run, last usage.Usage) usage.Usage {
	if run.Part == 0 && run.ParkedAt == nil {
		return last
	}
	u := usage.Usage{
		InputTokens: last.InputTokens + run.ParkedInputTokens, OutputTokens: last.OutputTokens + run.ParkedOutputTokens,
		ToolCalls: last.ToolCalls + run.ParkedToolCalls, CostUnknown: last.CostUnknown || run.ParkedCostUsd == nil,
	}
	if !u.CostUnknown {
		u.CostUSD = last.CostUSD + *run.ParkedCostUsd
	}
	return u.Bounded()
}

// waitsForPeople reports whether the run has unanswered questions and does nothing but wait for their
// answers. With atWork it ignores other work of the run.
func (s *sessionTx) waitsForPeople(ctx context.Context, run dbsqlc.Run, atWork bool) (bool, error) {
	rows, err := s.q.QuestionsPending(ctx, s, &dbsqlc.QuestionsPendingParams{RunID: run.ID})
	if err != nil || len(rows) == 0 {
		return false, err
	}
	var about, tools []string // calls, and tools of questions whose agent does not name the call
	for _, row := range rows {
		q, err := questionOf(row)
		if err != nil || q.Status != question.Open || !s.now.Before(q.ExpiresAt) {
			return false, err
		}
		if about = append(about, q.Asked.ToolUseID); q.Asked.ToolUseID == "" {
			tools = append(tools, q.Asked.ToolName)
		}
	}
	if atWork {
		return true, nil
	}
	working, err := s.q.BlocksAtWork(ctx, s, &dbsqlc.BlocksAtWorkParams{SessionID: s.row.ID, Since: run.BeganSeq})
	if err != nil {
		return false, err
	}
	waits := map[string]bool{} // conversations in which a call waits for people
	var subagents []subagentAtWork
	for _, row := range working {
		var b conversation.Block
		if err := json.Unmarshal(row.Block, &b); err != nil {
			return false, err
		}
		if b.Type == conversation.Subagent {
			subagents = append(subagents, subagentAtWork{conversationID: b.SubagentID, in: row.ConversationID})
			continue
		}
		if !slices.Contains(about, b.ToolUseID) && !slices.Contains(about, b.ID) && !slices.Contains(tools, b.Name) {
			return false, nil
		}
		waits[row.ConversationID] = true
	}
	return allWait(subagents, waits), nil
}

// subagentAtWork is a working subagent's conversation, and the one that started it.
type subagentAtWork struct{ conversationID, in string }

// allWait reports whether each subagent waits for a call in its conversation, or for a subagent
// that does.
func allWait(subagents []subagentAtWork, waits map[string]bool) bool {
	for len(subagents) > 0 {
		left := slices.DeleteFunc(slices.Clone(subagents), func(a subagentAtWork) bool {
			if waits[a.conversationID] {
				waits[a.in] = true
			}
			return waits[a.conversationID]
		})
		if len(left) == len(subagents) {
			return false
		}
		subagents = left
	}
	return true
}

// parkedInto reads the open questions of a parked run.
func (s *sessionTx) parkedInto(ctx context.Context, runID string, part int64, p *session.Processing) error {
	until, open, err := s.parkedUntil(ctx, runID, part)
	p.Parked, p.Due, p.Until = true, !open, until
	return err
}

// parkedUntil returns when the last question of a part of a run expires, and whether one is open.
func (s *sessionTx) parkedUntil(ctx context.Context, runID string, part int64) (until time.Time, open bool, err error) {
	rows, err := s.q.QuestionsParked(ctx, s, &dbsqlc.QuestionsParkedParams{RunID: runID, Part: part})
	for _, row := range rows {
		if row.Status == string(question.Open) {
			open = true
			if row.ExpiresAt.After(until) {
				until = row.ExpiresAt.UTC()
			}
		}
	}
	return until, open, err
}

// RunContinue assigns a parked run to the session's sandbox of a generation, once its questions are
// answered or have expired. It expires those whose time has passed. It is idempotent. It returns
// illegal_state if the session does not run in that generation.
func (db *DB) RunContinue(ctx context.Context, runID string, generation int64) (c run.Continuation, err error) {
	err = db.inRun(ctx, "continue a run", runID, func(s *sessionTx, claim dbsqlc.Run) error {
		c = run.Continuation{}
		switch {
		case claim.EndedAt != nil:
			c.Ended = true
			return nil
		case s.row.Status != string(session.Running) || generation != s.row.Generation:
			return illegal("the session is %s in generation %d", s.row.Status, s.row.Generation)
		case claim.ParkedAt != nil && claim.Generation == generation:
			return illegal("run %s was parked in generation %d, in which its agent still waits", runID, generation)
		case claim.ParkedAt == nil && claim.Generation != generation:
			return illegal("run %s is not parked", runID)
		case claim.ParkedAt == nil:
			c = run.Continuation{Granted: true, Dispatch: claim.Dispatch, Part: claim.Part}
			return nil
		}
		rows, err := s.q.QuestionsParked(ctx, s, &dbsqlc.QuestionsParkedParams{RunID: runID, Part: claim.Part + 1})
		if err != nil {
			return err
		}
		for _, row := range rows {
			if row.Status != string(question.Open) || s.now.Before(row.ExpiresAt) {
				continue
			}
			if _, err := s.questionResolve(ctx, row.ID, question.Expired, nil, question.ReasonExpired); err != nil {
				return err
			}
		}
		until, open, err := s.parkedUntil(ctx, runID, claim.Part+1)
		if err != nil || open {
			c.Until = until
			return err
		}
		continued, err := s.q.RunContinue(ctx, s, &dbsqlc.RunContinueParams{ID: runID, Generation: generation, PartSeq: s.row.LastSeq})
		c = run.Continuation{Granted: true, Dispatch: continued.Dispatch, Part: continued.Part}
		return err
	})
	return c, err
}

// QuestionsParked returns the questions with which a part of a run begins, oldest first.
func (db *DB) QuestionsParked(ctx context.Context, runID string, part int64) ([]question.Question, error) {
	rows, err := db.q.QuestionsParked(ctx, db.pool, &dbsqlc.QuestionsParkedParams{RunID: runID, Part: part})
	if err != nil {
		return nil, fault("read the questions of a parked run", err)
	}
	return questionsOf(rows)
}
