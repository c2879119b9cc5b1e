package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

func (c *claimable) read(ctx context.Context, q *dbsqlc.Queries, in *lookups, sessionID, promptID string) error {
	var promptErr, openErr, firstErr, commandsErr, headErr error
	c.promptID = promptID
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

// read excludes the run with the given id, which need not exist yet, from the runs that the agent
// has received.
func (o *surroundings) read(ctx context.Context, q *dbsqlc.Queries, in *lookups, sessionID string, generation int64, runID string) error {
	var rowErr, transcriptsErr, markErr error
	o.RunSurroundingsRow, rowErr = q.RunSurroundings(ctx, in, &dbsqlc.RunSurroundingsParams{SessionID: sessionID, ID: runID, Generation: generation})
	o.transcripts, transcriptsErr = transcriptPositions(ctx, q, in, sessionID)
	if in.collecting() {
		o.secretsMark.At = time.Now()
	}
	o.secretsMark.Value, markErr = q.SecretsMark(ctx, in)
	return cmp.Or(rowErr, transcriptsErr, markErr)
}

// RunWorking is RunOpen without parked runs.
func (db *DB) RunWorking(ctx context.Context, sessionID string) (string, error) {
	open, err := db.q.RunGetOpen(ctx, db.pool, sessionID)
	if isNoRows(err) || open.ParkedAt != nil {
		return "", nil
	}
	return open.ID, fault("find a session's run", err)
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

func (c *closing) read(ctx context.Context, q *dbsqlc.Queries, in *lookups, sessionID, runID string) error {
	var rowErr, headErr error
	if c.RunClosingRow, rowErr = q.RunClosing(ctx, in, runID); isNoRows(rowErr) {
		rowErr = noRun(runID)
	}
	c.head, headErr = promptHead(ctx, q, in, sessionID)
	return cmp.Or(rowErr, headErr)
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
