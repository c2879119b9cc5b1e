package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// pipeline collects statements whose results nobody needs one by one and sends
// them in one round trip. An append is mostly round trips.
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

// send executes what was queued, in order, and returns the first error.
func (p *pipeline) send(ctx context.Context, tx pgx.Tx) error {
	if p.batch.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, &p.batch).Close()
}
