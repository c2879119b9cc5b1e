package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// errCallTimeout is the cause of a call that took too long.
var errCallTimeout = errors.New("the call took too long")

// boundsKey marks a context that a call's deadline has been put on already.
type boundsKey struct{}

// within puts the deadline of a call on ctx, unless an enclosing call has done so. The deadline of
// the caller stays if it is earlier: an activity may last a day, one statement may not.
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if ctx.Value(boundsKey{}) != nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errCallTimeout)
	return context.WithValue(ctx, boundsKey{}, limit), cancel
}

// bulk gives a call that moves whole files or histories the longer deadline. It goes first in the
// method that needs it.
func (db *DB) bulk(ctx context.Context) (context.Context, context.CancelFunc) {
	return within(ctx, db.options.BulkTimeout)
}

// statementLimit returns the statement that lets a bulk call's statements run as long as the call
// may; "" when the limit of the connection is right.
func (db *DB) statementLimit(ctx context.Context) string {
	if limit, ok := ctx.Value(boundsKey{}).(time.Duration); ok && limit > db.options.CallTimeout {
		return "set local statement_timeout = " + milliseconds(limit)
	}
	return ""
}

// pingAfter is how long a connection may have been idle before it is asked whether it still works;
// pingTimeout how long it may take to answer.
const (
	pingAfter   = time.Second
	pingTimeout = 3 * time.Second
)

// boundedPool is a pool of connections on which every call has a deadline. It has the methods that
// the generated code needs.
type boundedPool struct {
	*pgxpool.Pool
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
			// The server vanished without closing anything. The other idle connections would cost
			// one timeout each; the pool closes them and connects again.
			pool.Reset()
		}
		return p.Conn.IsClosed() // a ping of a closed connection fails at once, and the pool discards it
	}
	var err error
	pool, err = pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &boundedPool{Pool: pool, limit: o.CallTimeout}, nil
}

// Exec executes one statement.
func (p *boundedPool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	ctx, cancel := within(ctx, p.limit)
	defer cancel()
	return p.Pool.Exec(ctx, sql, args...)
}

// Query executes one statement. The deadline includes reading the rows.
func (p *boundedPool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	ctx, cancel := within(ctx, p.limit)
	rows, err := p.Pool.Query(ctx, sql, args...)
	if err != nil {
		cancel()
		return rows, err
	}
	return &boundedRows{Rows: rows, cancel: cancel}, nil
}

// QueryRow executes one statement. The deadline includes reading the row.
func (p *boundedPool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	ctx, cancel := within(ctx, p.limit)
	return &boundedRow{row: p.Pool.QueryRow(ctx, sql, args...), cancel: cancel}
}

// Ping reports whether Postgres answers.
func (p *boundedPool) Ping(ctx context.Context) error {
	ctx, cancel := within(ctx, p.limit)
	defer cancel()
	return p.Pool.Ping(ctx)
}

type boundedRows struct {
	pgx.Rows
	cancel context.CancelFunc
}

// Close may be called again.
func (r *boundedRows) Close() {
	r.Rows.Close()
	r.cancel()
}

type boundedRow struct {
	row    pgx.Row
	cancel context.CancelFunc
}

// Scan is called once.
func (r *boundedRow) Scan(dest ...any) error {
	defer r.cancel()
	return r.row.Scan(dest...)
}
