package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// fewRows is the number of rows below which it does not matter whether a statement reads all rows of a table.
const fewRows = 50

// StatisticsRefresh analyzes the tables that have doubled since they were analyzed, and returns their names. Postgres plans
// a statement for the size that its tables had at their last analysis: while tables are small, it prefers to read
// whole tables, and connections keep such a plan until the next analysis. Autovacuum analyzes by changed rows, of which
// a busy session has thousands without any growth; see migration 00194. Tables that another process
// analyzes at that time are skipped.
func (db *DB) StatisticsRefresh(ctx context.Context) ([]string, error) {
	const doing = "refresh statistics"
	ctx, cancel := db.bulk(ctx)
	defer cancel()
	rows, err := db.pool.Query(ctx, `
		SELECT c.relname FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
		WHERE s.schemaname = current_schema() AND pg_has_role(c.relowner, 'USAGE') AND s.n_live_tup >= $1 AND s.n_live_tup >= 2 * c.reltuples
		ORDER BY c.relname`, fewRows)
	if err != nil {
		return nil, fault(doing, err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fault(doing, err)
	}
	for i, table := range tables {
		if _, err := db.pool.Exec(ctx, "ANALYZE (SKIP_LOCKED) "+pgx.Identifier{table}.Sanitize()); err != nil {
			return tables[:i], fault(doing, err)
		}
	}
	return tables, nil
}
