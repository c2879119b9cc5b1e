package postgres

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// runWindow bounds the runs that a page of a list reads. If the status is rare, a page may be
// short, or empty, although a next page exists.
const runWindow = 5000

// runCursor is the last run of a page.
type runCursor struct {
	ID string `json:"r"`
}

// RunShow returns a run by its id, or by the id of one of its claims; run_not_found.
func (db *DB) RunShow(ctx context.Context, runID string) (run.View, error) {
	const doing = "read a run"
	at, err := db.q.RunPrompt(ctx, db.pool, runID)
	if isNoRows(err) {
		return run.View{}, noRun(runID)
	}
	if err != nil {
		return run.View{}, fault(doing, err)
	}
	v, err := db.runView(ctx, db.pool, at.SessionID, at.ID)
	if isNoRows(err) { // purged meanwhile
		return v, noRun(runID)
	}
	v.ID = cmp.Or(v.ID, runID)
	return v, fault(doing, err)
}

func (db *DB) runView(ctx context.Context, tx dbsqlc.DBTX, sessionID, promptID string) (run.View, error) {
	row, err := db.q.RunViewGet(ctx, tx, &dbsqlc.RunViewGetParams{SessionID: sessionID, PromptID: promptID})
	if err != nil {
		return run.View{}, err
	}
	return runViewOf(row), nil
}

// RunList returns a page of runs, newest first. It omits prompts of earlier releases that have not
// been claimed since.
func (db *DB) RunList(ctx context.Context, f run.Filter) (items []run.View, next string, err error) {
	before := runCursor{ID: "s"} // sorts after every id
	if f.Cursor != "" {
		if err := cursorDecode(f.Cursor, &before); err != nil {
			return nil, "", err
		}
	}
	limit := pageLimit(f.Limit)
	err = db.inTx(ctx, "list runs", pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		window, err := db.runsWindow(ctx, tx, f, before.ID)
		if err != nil {
			return err
		}
		switch ids := window.RunIds; {
		case len(ids) > limit:
			window.RunIds, next = ids[:limit], cursorEncode(runCursor{ID: ids[limit-1]})
		case window.Looked == runWindow:
			next = cursorEncode(runCursor{ID: window.Last})
		}
		rows, err := db.q.RunViews(ctx, tx, window.RunIds)
		for _, row := range rows {
			items = append(items, runViewOf(row))
		}
		return err
	})
	return items, next, err
}

func (db *DB) runsWindow(ctx context.Context, tx pgx.Tx, f run.Filter, before string) (dbsqlc.RunsWindowRow, error) {
	if f.SessionID == "" {
		return db.q.RunsWindow(ctx, tx, &dbsqlc.RunsWindowParams{Status: string(f.Status), Agent: f.Agent, Before: before, MaxItems: runWindow})
	}
	exists, err := db.q.SessionExists(ctx, tx, f.SessionID)
	if err != nil {
		return dbsqlc.RunsWindowRow{}, err
	}
	if !exists {
		return dbsqlc.RunsWindowRow{}, noSession(f.SessionID)
	}
	window, err := db.q.RunsWindowOf(ctx, tx, &dbsqlc.RunsWindowOfParams{
		SessionID: f.SessionID, Status: string(f.Status), Agent: f.Agent, Before: before, MaxItems: runWindow,
	})
	return dbsqlc.RunsWindowRow(window), err
}

func runViewOf(row dbsqlc.RunView) run.View {
	v := run.View{
		ID: cmp.Or(row.RunID, session.RunOf(row.ClaimID)), SessionID: row.SessionID, PromptID: row.PromptID, Agent: row.Agent,
		BaseSession: row.BaseSessionID, BaseBundle: row.BaseBundleID, JoinedTo: row.JoinedTo,
		Status: session.PromptStatus(row.Status), Reason: row.Reason, Attempts: int(row.Claims), BundleID: row.BundleID,
		CreatedAt: row.CreatedAt.UTC(), StartedAt: orZero(row.StartedAt), EndedAt: orZero(row.EndedAt),
	}
	if row.Used {
		v.Usage = &session.PromptUsage{Model: row.Model, Usage: usageOf(dbsqlc.Run{
			InputTokens: row.InputTokens, OutputTokens: row.OutputTokens, ToolCalls: row.ToolCalls, CostUsd: row.CostUsd,
		})}
	}
	return v
}

// errKeyTaken means that an idempotency key was used between its lookup and its insertion.
var errKeyTaken = failure.Errorf(failure.Unavailable, "the idempotency key was taken by a request at the same time")

// runByKey returns the run that was submitted with a key; false if there is none.
func (db *DB) runByKey(ctx context.Context, idem session.Idempotency) (v run.View, found bool, err error) {
	if idem.Key == "" {
		return v, false, nil
	}
	key, err := db.q.IdempotencyGet(ctx, db.pool, idem.Key)
	if isNoRows(err) {
		return v, false, nil
	}
	if err != nil {
		return v, false, err
	}
	now, err := clock(ctx, db.q, db.pool)
	switch {
	case err != nil:
		return v, false, err
	case key.CreatedAt.Before(now.Add(-keyLife)):
		return v, false, nil
	case key.Digest != idem.Digest:
		return v, false, failure.Errorf(failure.Idempotency, "the idempotency key was used for another request")
	}
	if key.PromptID != "" {
		v, err = db.runView(ctx, db.pool, key.SessionID, key.PromptID)
	} else { // its session was created for it
		var row dbsqlc.RunView
		row, err = db.q.RunViewFirst(ctx, db.pool, key.SessionID)
		v = runViewOf(row)
	}
	if isNoRows(err) { // purged meanwhile
		return v, false, nil
	}
	return v, err == nil, err
}
