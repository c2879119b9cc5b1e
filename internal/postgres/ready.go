package postgres

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/overwinter-dev/overwinter/internal/failure"
)

const (
	// probeTimeout bounds one probe of the database.
	probeTimeout = 5 * time.Second
	// probeEvery is how long the result of a write probe stays valid.
	probeEvery = 10 * time.Second
)

// prober checks whether the database is usable. There is one probe at a time, with its own
// deadline, which all callers share: probes do not pile up while Postgres hangs.
type prober struct {
	mu      sync.Mutex
	looking *look // the current probe, if any
	looks   sync.WaitGroup
	closed  bool

	// Used only by the probing goroutine.
	wroteAt time.Time
	wrote   error // result of the last write probe that got a response
}

type look struct {
	done chan struct{} // closed when err is set
	err  error
}

// Ready reports whether the database responds, has the schema of this program, and can be written
// to. Every call checks the first; the other two are checked every ten seconds. The message of the
// error names the reason without confidential details.
func (db *DB) Ready(ctx context.Context) error {
	p := &db.prober
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return failure.Errorf(failure.Unavailable, "is closed")
	}
	at := p.looking
	if at == nil {
		at = &look{done: make(chan struct{})}
		p.looking = at
		// The probe outlives the caller: the next one may share it.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
		p.looks.Go(func() {
			defer cancel()
			at.err = db.look(bounded)
			p.mu.Lock()
			p.looking = nil
			p.mu.Unlock()
			close(at.done)
		})
	}
	p.mu.Unlock()
	select {
	case <-at.done:
		return at.err
	case <-ctx.Done():
		return &failure.Error{Code: failure.Unavailable, Message: "does not answer", Err: ctx.Err()}
	}
}

func (p *prober) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.looks.Wait()
}

func (db *DB) look(ctx context.Context) error {
	if err := db.Ping(ctx); err != nil {
		return &failure.Error{Code: failure.Unavailable, Message: "does not answer", Err: err}
	}
	p := &db.prober
	if !p.wroteAt.IsZero() && time.Since(p.wroteAt) < probeEvery {
		return p.wrote
	}
	err := db.SchemaCheck(ctx)
	if err == nil {
		err = db.writeProbe(ctx)
	}
	if ctx.Err() != nil {
		return &failure.Error{Code: failure.Unavailable, Message: "does not answer", Err: err}
	}
	if err != nil && p.wrote == nil {
		db.logger.ErrorContext(ctx, "the database cannot be used", slog.Any("error", err))
	}
	p.wroteAt, p.wrote = time.Now(), err
	return err
}

// writeStatements commit a change of a row, which writes to the write-ahead log, and extend a file:
// a full disk still accepts changes of existing pages. The file belongs to a temporary table that
// each commit empties, so that each probe must extend it again.
const writeStatements = `BEGIN;
SET LOCAL lock_timeout = '2s';
CREATE TEMPORARY TABLE IF NOT EXISTS overwinter_write_probe (filler text) ON COMMIT DELETE ROWS;
INSERT INTO pg_temp.overwinter_write_probe SELECT repeat('x', 1900) FROM generate_series(1, 40);
UPDATE write_probe SET at = clock_timestamp();
COMMIT`

func (db *DB) writeProbe(ctx context.Context) error {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return fault("probe writing", err)
	}
	defer conn.Release() // closes a connection that is still in a transaction
	_, err = conn.Conn().PgConn().Exec(ctx, writeStatements).ReadAll()
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil:
		return nil
	case ok && pgErr.Code == "53100":
		return &failure.Error{Code: failure.Unavailable, Message: "cannot be written to: its disk is full", Err: err}
	case ok && pgErr.Code == "25006":
		return &failure.Error{Code: failure.Unavailable, Message: "cannot be written to: it is read-only", Err: err}
	}
	return &failure.Error{Code: failure.Unavailable, Message: "cannot be written to", Err: err}
}
