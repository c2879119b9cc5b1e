package postgres

import (
	"context"
	"time"

	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Unclaimed lists sessions after an id, in order of ids, with work older than age that no workflow seems to
// know of: not loaded, or signalled and not taken. The query's comment gives the reasons.
func (db *DB) Unclaimed(ctx context.Context, after string, age time.Duration, limit int) ([]session.UnclaimedWork, error) {
	rows, err := db.q.Unclaimed(ctx, db.pool, &dbsqlc.UnclaimedParams{After: after, AgeSeconds: age.Seconds(), MaxItems: int32(limit)})
	if err != nil {
		return nil, fault("list unclaimed work", err)
	}
	work := make([]session.UnclaimedWork, len(rows))
	for i, row := range rows {
		work[i] = session.UnclaimedWork{SessionID: row.SessionID, PromptID: row.PromptID, Ordinal: row.Ordinal}
	}
	return work, nil
}

// Attended lists loaded sessions after an id, in order of ids, that have something to do, so that
// their workflow must be open. RunID is an open run that has been silent for as long as quiet.
func (db *DB) Attended(ctx context.Context, after string, quiet time.Duration, limit int) ([]session.Attended, error) {
	rows, err := db.q.Attended(ctx, db.pool, &dbsqlc.AttendedParams{After: after, QuietSeconds: quiet.Seconds(), MaxItems: int32(limit)})
	if err != nil {
		return nil, fault("list attended sessions", err)
	}
	attended := make([]session.Attended, len(rows))
	for i, row := range rows {
		attended[i] = session.Attended{
			SessionID: row.SessionID, RunID: row.RunID, Status: session.State(row.Status), WorkflowRun: row.WorkflowRun,
		}
	}
	return attended, nil
}
