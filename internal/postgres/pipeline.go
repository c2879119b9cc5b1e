package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// pipeline collects statements whose results are not needed individually and sends them in one
// round trip. Round trips dominate the cost of an append.
type pipeline struct {
	batch pgx.Batch
	// sent is called when the statements are on their way, before their results are awaited. Default: it
	// is not called.
	sent func()
}

var errPipelineReads = errors.New("a pipeline returns no rows")

// Exec queues a statement. send returns its error, if any.
func (p *pipeline) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	p.batch.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}

// Query implements the interface of the generated code and always fails.
func (p *pipeline) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return nil, errPipelineReads
}

// QueryRow implements the interface of the generated code and always fails.
func (p *pipeline) QueryRow(context.Context, string, ...any) pgx.Row { return noRow{} }

type noRow struct{}

func (noRow) Scan(...any) error { return errPipelineReads }

// send executes the queued queries in order, and returns the first error.
func (p *pipeline) send(ctx context.Context, conn *pgx.Conn) error {
	results := conn.SendBatch(ctx, &p.batch)
	if p.sent != nil && !conn.IsClosed() {
		p.sent()
	}
	return results.Close()
}

// lookups sends several queries in one round trip. The code that queries runs twice: the first time
// its queries are collected, the second time it gets their rows.
type lookups struct {
	batch pgx.Batch
	rows  pgx.BatchResults // nil while queries are collected
}

// errCollected is returned by a query that is only collected.
var errCollected = errors.New("the query is not sent yet")

// collecting reports whether the queries have not been sent yet.
func (l *lookups) collecting() bool { return l.rows == nil }

// Exec implements the interface of the generated code and always fails.
func (l *lookups) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errors.New("lookups change nothing")
}

// Query collects the query, or returns the rows of the next one in order.
func (l *lookups) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	if l.collecting() {
		l.batch.Queue(sql, args...)
		return nil, errCollected
	}
	return l.rows.Query()
}

// QueryRow is Query for one row.
func (l *lookups) QueryRow(_ context.Context, sql string, args ...any) pgx.Row {
	if l.collecting() {
		l.batch.Queue(sql, args...)
		return collectedRow{}
	}
	return l.rows.QueryRow()
}

type collectedRow struct{}

func (collectedRow) Scan(...any) error { return errCollected }

// send runs the statements first, which return no rows, and then the queries of ask on conn. When a
// query fails with errCollected, ask must continue with the next one.
func (l *lookups) send(ctx context.Context, conn *pgx.Conn, first []string, ask func(*lookups) error) (err error) {
	for _, statement := range first {
		l.batch.Queue(statement)
	}
	return l.ask(ctx, conn, len(first), ask)
}

// also is send within an open transaction.
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
