package postgres

import (
	"context"
	"time"

	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Unclaimed lists sessions with work older than age that no workflow seems to
// know of: not loaded, or rung for and not taken. One ring per session. The
// query's comment gives the reasons.
func (db *DB) Unclaimed(ctx context.Context, age time.Duration, limit int) ([]session.Ring, error) {
	rows, err := db.q.Unclaimed(ctx, db.pool, &dbsqlc.UnclaimedParams{AgeSeconds: age.Seconds(), MaxItems: int32(limit)})
	if err != nil {
		return nil, fault("list unclaimed work", err)
	}
	rings := make([]session.Ring, len(rows))
	for i, row := range rows {
		rings[i] = session.Ring{SessionID: row.SessionID, PromptID: row.PromptID, Ordinal: row.Ordinal}
	}
	return rings, nil
}
