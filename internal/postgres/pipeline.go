package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// pipeline collects statements whose results are not needed one by one and sends them in one round
// trip. An append is mostly round trips.
type pipeline struct {
	batch pgx.Batch
}

var errPipelineReads = errors.New("a pipeline returns no rows")

// Exec queues a statement. Its error, if any, is that of send.
func (p *pipeline) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	p.batch.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}

// Query is there for the generated code's interface and always fails.
func (p *pipeline) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return nil, errPipelineReads
}

// QueryRow is there for the generated code's interface and always fails.
func (p *pipeline) QueryRow(context.Context, string, ...any) pgx.Row { return noRow{} }

type noRow struct{}

func (noRow) Scan(...any) error { return errPipelineReads }

// send executes the queued queries in order, and returns the first error.
func (p *pipeline) send(ctx context.Context, conn *pgx.Conn) error {
	return conn.SendBatch(ctx, &p.batch).Close()
}

// lookups makes queries share a round trip. The code that asks runs twice: first
// its queries are collected, then it gets their rows.
type lookups struct {
	batch pgx.Batch
	rows  pgx.BatchResults // nil while queries are collected
}

// errCollected is what a query returns that is only collected.
var errCollected = errors.New("the query is not sent yet")

// Exec is there for the generated code's interface and always fails.
func (l *lookups) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errors.New("lookups change nothing")
}

// Query collects the query, or returns the rows of the next one in order.
func (l *lookups) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	if l.rows == nil {
		l.batch.Queue(sql, args...)
		return nil, errCollected
	}
	return l.rows.Query()
}

// QueryRow is Query for one row.
func (l *lookups) QueryRow(_ context.Context, sql string, args ...any) pgx.Row {
	if l.rows == nil {
		l.batch.Queue(sql, args...)
		return collectedRow{}
	}
	return l.rows.QueryRow()
}

type collectedRow struct{}

func (collectedRow) Scan(...any) error { return errCollected }

// send runs the queries of ask on conn, after the statements first, which return no rows. Every
// query of ask must continue with the next when it fails with errCollected.
func (l *lookups) send(ctx context.Context, conn *pgx.Conn, first []string, ask func(*lookups) error) (err error) {
	for _, statement := range first {
		l.batch.Queue(statement)
	}
	return l.ask(ctx, conn, len(first), ask)
}

// also is send within a transaction that has begun.
func (l *lookups) also(ctx context.Context, conn *pgx.Conn, ask func(*lookups) error) error {
	return l.ask(ctx, conn, 0, ask)
}

func (l *lookups) ask(ctx context.Context, conn *pgx.Conn, statements int, ask func(*lookups) error) (err error) {
	if err := ask(l); !errors.Is(err, errCollected) {
		return err
	}
	l.rows = conn.SendBatch(ctx, &l.batch)
	defer func() {
		if closeErr := l.rows.Close(); err == nil {
			err = closeErr
		}
	}()
	for range statements {
		if _, err := l.rows.Exec(); err != nil {
			return err
		}
	}
	return ask(l)
}
