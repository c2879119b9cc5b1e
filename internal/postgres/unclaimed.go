package postgres

import (
	"context"
	"time"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Unclaimed lists sessions after an id, ordered by id, with work older than age that apparently no
// workflow has seen: the session is not loaded, or was signalled without a reaction. The comment of
// the query gives the reasons.
func (db *DB) Unclaimed(ctx context.Context, after string, age time.Duration, limit int) ([]backlog.Unclaimed, error) {
	rows, err := db.q.Unclaimed(ctx, db.pool, &dbsqlc.UnclaimedParams{After: after, AgeSeconds: age.Seconds(), MaxItems: int32(limit)})
	if err != nil {
		return nil, fault("list unclaimed work", err)
	}
	work := make([]backlog.Unclaimed, len(rows))
	for i, row := range rows {
		work[i] = backlog.Unclaimed{SessionID: row.SessionID, PromptID: row.PromptID, Ordinal: row.Ordinal}
	}
	return work, nil
}

// PromptsUnclaimed returns the prompts among those given that are queued in sessions without a run
// in progress.
func (db *DB) PromptsUnclaimed(ctx context.Context, asked []backlog.Unclaimed) ([]backlog.Unclaimed, error) {
	ctx, cancel := within(ctx, db.options.CallTimeout)
	defer cancel()
	sessions, ids := make([]string, len(asked)), make([]string, len(asked))
	for i, p := range asked {
		sessions[i], ids[i] = p.SessionID, p.PromptID
	}
	var rows []dbsqlc.PromptsUnclaimedRow
	err := db.inOneTrip(ctx, func(in *lookups) (err error) {
		rows, err = db.q.PromptsUnclaimed(ctx, in, &dbsqlc.PromptsUnclaimedParams{SessionIds: sessions, Ids: ids})
		return err
	})
	if err != nil {
		return nil, fault("look whether prompts were claimed", err)
	}
	waiting := make(map[dbsqlc.PromptsUnclaimedRow]bool, len(rows))
	for _, row := range rows {
		waiting[row] = true
	}
	var unclaimed []backlog.Unclaimed
	for _, p := range asked {
		if waiting[dbsqlc.PromptsUnclaimedRow{SessionID: p.SessionID, ID: p.PromptID}] {
			unclaimed = append(unclaimed, p)
		}
	}
	return unclaimed, nil
}

// Awake lists the sessions that are running, restoring or hibernating.
func (db *DB) Awake(ctx context.Context) ([]backlog.Awake, error) {
	rows, err := db.q.SessionsAwake(ctx, db.pool)
	if err != nil {
		return nil, fault("list sessions that are awake", err)
	}
	awake := make([]backlog.Awake, len(rows))
	for i, row := range rows {
		awake[i] = backlog.Awake{SessionID: row.ID, Status: session.State(row.Status), RunID: row.RunID}
	}
	return awake, nil
}

// Attended lists loaded sessions after an id, ordered by id, that have work, so that their workflow
// must be open. RunID is an open run that has been silent for longer than quiet.
func (db *DB) Attended(ctx context.Context, after string, quiet time.Duration, limit int) ([]backlog.Attended, error) {
	rows, err := db.q.Attended(ctx, db.pool, &dbsqlc.AttendedParams{After: after, QuietSeconds: quiet.Seconds(), MaxItems: int32(limit)})
	if err != nil {
		return nil, fault("list attended sessions", err)
	}
	attended := make([]backlog.Attended, len(rows))
	for i, row := range rows {
		attended[i] = backlog.Attended{
			SessionID: row.SessionID, RunID: row.RunID, Status: session.State(row.Status), WorkflowRun: row.WorkflowRun,
		}
	}
	return attended, nil
}
