package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// EventsReadSQL is the statement that reads pages of events.
const EventsReadSQL = eventsRead

// Plans counts the custom and the generic plans of a prepared statement.
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

// ExplainPrepared returns the generic plan of every statement that a connection has prepared.
func ExplainPrepared(ctx context.Context, db *DB) (plans []string, err error) {
	tx, err := db.pool.BeginTx(ctx, pgx.TxOptions{})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // nothing has changed
	rows, err := tx.Query(ctx, `SELECT format('%I', name) || CASE WHEN cardinality(parameter_types) > 0
		THEN '(' || array_to_string(array_fill('NULL'::text, ARRAY[cardinality(parameter_types)]), ',') || ')' ELSE '' END
		FROM pg_prepared_statements WHERE statement ~* '(select|insert|update|delete|with)' AND generic_plans > 0 ORDER BY 1`, pgx.QueryExecModeExec)
	if err != nil {
		return nil, err
	}
	executions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, genericPlans, pgx.QueryExecModeExec); err != nil {
		return nil, err
	}
	for _, execution := range executions {
		rows, err := tx.Query(ctx, "EXPLAIN EXECUTE "+execution, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return nil, err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("explain %s: %w", execution, err)
		}
		plans = append(plans, strings.Join(lines, "\n"))
	}
	return plans, nil
}
