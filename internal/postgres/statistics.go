package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// statisticsLock is the advisory lock of the process that analyzes a table.
const statisticsLock = 0x6f77_7374

// analysisDue selects the tables that have at least as many rows as the first argument, and have doubled since they were analyzed, or
// never were. The role can only analyze the tables that it owns.
const analysisDue = `FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
	WHERE s.schemaname = current_schema() AND pg_has_role(c.relowner, 'USAGE') AND s.n_live_tup >= $1
		AND (s.n_live_tup >= 2 * c.reltuples OR s.last_analyze IS NULL AND s.last_autoanalyze IS NULL)`

// StatisticsRefresh analyzes the tables of at least few rows that have doubled in size since they were analyzed, and returns the names
// of those that were due. Postgres plans a statement for the size that its tables had at their last analysis: while tables are small, it
// prefers to read whole tables, and connections keep such a plan until the next analysis. Autovacuum analyzes by changed
// rows, of which a busy session has thousands without any growth; see migration 00194. A table that is locked is
// skipped. If some tables cannot be analyzed, the others are, and the error joins the reasons.
func (db *DB) StatisticsRefresh(ctx context.Context, few int) (due []string, err error) {
	const doing = "refresh statistics"
	rows, err := db.pool.Query(ctx, "SELECT s.schemaname, s.relname "+analysisDue+" ORDER BY s.relname", few)
	if err != nil {
		return nil, fault(doing, err)
	}
	tables, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (name pgx.Identifier, err error) {
		name = make(pgx.Identifier, 2)
		return name, row.Scan(&name[0], &name[1])
	})
	if err != nil {
		return nil, fault(doing, err)
	}
	var failed []error
	for _, table := range tables {
		due = append(due, table[1])
		failed = append(failed, db.analyze(ctx, table, few))
	}
	return due, fault(doing, errors.Join(failed...))
}

// analyze analyzes a table unless another process has just done so, or is analyzing one.
func (db *DB) analyze(ctx context.Context, table pgx.Identifier, few int) error {
	ctx, cancel := db.bulk(ctx)
	defer cancel()
	return db.inTx(ctx, "analyze "+table[1], pgx.TxOptions{}, func(tx pgx.Tx) error {
		var due bool
		err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($3) AND EXISTS (SELECT "+analysisDue+" AND s.relname = $2)",
			few, table[1], int64(statisticsLock)).Scan(&due)
		if err != nil || !due {
			return err
		}
		_, err = tx.Exec(ctx, "ANALYZE (SKIP_LOCKED) "+table.Sanitize())
		return err
	})
}
