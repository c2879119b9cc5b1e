package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Plans is how often a prepared statement was planned for its parameters, and how often it used a plan for any.
type Plans struct {
	SQL             string
	Custom, Generic int64
}

// PlansOf returns the plans of one connection.
func PlansOf(ctx context.Context, db *DB) ([]Plans, error) {
	rows, err := db.pool.Query(ctx, "SELECT statement, custom_plans, generic_plans FROM pg_prepared_statements")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Plans])
}
