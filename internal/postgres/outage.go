package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
)

// keepOutages is the number of outages that are kept.
const keepOutages = 1000

// OutageRecord records that a worker could not reach a part of the installation, database or
// temporal. began and ended are durations before now. It merges the outage with overlapping ones
// that other workers have recorded.
func (db *DB) OutageRecord(ctx context.Context, part string, began, ended time.Duration) error {
	return db.inTx(ctx, "record an outage", pgx.TxOptions{}, func(tx pgx.Tx) error {
		n, err := db.q.OutageExtend(ctx, tx, &dbsqlc.OutageExtendParams{Part: part, SinceAgo: began.Seconds(), UntilAgo: ended.Seconds()})
		if err != nil || n > 0 {
			return err
		}
		if err := db.q.OutageInsert(ctx, tx, &dbsqlc.OutageInsertParams{Part: part, SinceAgo: began.Seconds(), UntilAgo: ended.Seconds()}); err != nil {
			return err
		}
		return db.q.OutagesForget(ctx, tx, keepOutages)
	})
}
