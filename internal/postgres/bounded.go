package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// errCallTimeout is the cause when a call exceeds its deadline.
var errCallTimeout = errors.New("the call took too long")

// boundsKey marks a context that already has the deadline of a call.
type boundsKey struct{}

// within sets the deadline of a call on ctx, unless an enclosing call has done so. An earlier
// deadline of the caller stays: an activity may last a day, but a statement may not.
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if ctx.Value(boundsKey{}) != nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errCallTimeout)
	return context.WithValue(ctx, boundsKey{}, limit), cancel
}

// bulk gives a call that moves whole files or histories the longer deadline. It must be the first
// call in a method that needs it.
func (db *DB) bulk(ctx context.Context) (context.Context, context.CancelFunc) {
	return within(ctx, db.options.BulkTimeout)
}

// statementLimit returns the statement that allows the statements of a bulk call to run until the
// call's deadline; "" if the limit of the connection is already right.
func (db *DB) statementLimit(ctx context.Context) string {
	if limit, ok := ctx.Value(boundsKey{}).(time.Duration); ok && limit > db.options.CallTimeout {
		return "set local statement_timeout = " + milliseconds(limit)
	}
	return ""
}

// pingAfter is the idle time after which a connection is pinged before use; pingTimeout bounds that
// ping.
const (
	pingAfter   = time.Second
	pingTimeout = 3 * time.Second
)

// boundedPool is a connection pool that sets a deadline on every call. It does not embed the pool,
// whose other methods have no deadline.
type boundedPool struct {
	pool  *pgxpool.Pool
	limit time.Duration
}

func newBoundedPool(ctx context.Context, config *pgxpool.Config, o Options) (*boundedPool, error) {
	var pool *pgxpool.Pool
	config.PingTimeout = pingTimeout
	config.ShouldPing = func(ctx context.Context, p pgxpool.ShouldPingParams) bool {
		if p.IdleDuration < pingAfter {
			return false
		}
		asked, cancel := context.WithTimeout(ctx, pingTimeout)
		defer cancel()
		if err := p.Conn.Ping(asked); err != nil && asked.Err() != nil && ctx.Err() == nil {
			// The server vanished without closing its connections. Each other idle connection would
			// cost a timeout; the pool closes them and reconnects.
			pool.Reset()
		}
		return p.Conn.IsClosed() // a ping of a closed connection fails at once, and the pool discards it
	}
	var err error
	pool, err = pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &boundedPool{pool: pool, limit: o.CallTimeout}, nil
}

// Exec executes one statement.
func (p *boundedPool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	ctx, cancel := within(ctx, p.limit)
	defer cancel()
	return p.pool.Exec(ctx, sql, args...)
}

// Query executes one statement. The deadline includes reading the rows.
func (p *boundedPool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	ctx, cancel := within(ctx, p.limit)
	rows, err := p.pool.Query(ctx, sql, args...)
	if err != nil {
		cancel()
		return rows, err
	}
	return &boundedRows{Rows: rows, cancel: cancel}, nil
}

// QueryRow executes one statement. The deadline includes reading the row.
func (p *boundedPool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	ctx, cancel := within(ctx, p.limit)
	return &boundedRow{row: p.pool.QueryRow(ctx, sql, args...), cancel: cancel}
}

// Ping reports whether Postgres answers.
func (p *boundedPool) Ping(ctx context.Context) error {
	ctx, cancel := within(ctx, p.limit)
	defer cancel()
	return p.pool.Ping(ctx)
}

// SendBatch sends statements in one round trip. The deadline includes reading their results.
func (p *boundedPool) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	ctx, cancel := within(ctx, p.limit)
	return &boundedResults{BatchResults: p.pool.SendBatch(ctx, b), cancel: cancel}
}

// BeginTx begins a transaction. The caller sets its deadline.
func (p *boundedPool) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	return p.pool.BeginTx(ctx, o)
}

// Acquire takes a connection. The caller sets the deadline of what it does with it.
func (p *boundedPool) Acquire(ctx context.Context) (*pgxpool.Conn, error) { return p.pool.Acquire(ctx) }

// Stat returns the current state of the pool.
func (p *boundedPool) Stat() *pgxpool.Stat { return p.pool.Stat() }

// Close waits for calls in progress, and closes every connection.
func (p *boundedPool) Close() { p.pool.Close() }

type boundedResults struct {
	pgx.BatchResults
	cancel context.CancelFunc
}

// Close may be called more than once.
func (r *boundedResults) Close() error {
	defer r.cancel()
	return r.BatchResults.Close()
}

type boundedRows struct {
	pgx.Rows
	cancel context.CancelFunc
}

// Close may be called more than once.
func (r *boundedRows) Close() {
	r.Rows.Close()
	r.cancel()
}

type boundedRow struct {
	row    pgx.Row
	cancel context.CancelFunc
}

// Scan must be called exactly once.
func (r *boundedRow) Scan(dest ...any) error {
	defer r.cancel()
	return r.row.Scan(dest...)
}
