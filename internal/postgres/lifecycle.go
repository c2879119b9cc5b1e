package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// lifecycleBatch bounds the events that one transaction numbers or deletes.
	lifecycleBatch = 1000
	// lifecyclePage bounds the events that one statement reads, lifecycleBytes the bytes of the
	// selected ones. The first event may exceed it.
	lifecyclePage  = 500
	lifecycleBytes = 1 << 20
)

// LifecycleNumber assigns positions to events written since the last call, and reports whether
// there were any. Any number of processes may call it concurrently: one does the work, the others
// return immediately.
func (db *DB) LifecycleNumber(ctx context.Context) (numbered bool, err error) {
	const doing = "order lifecycle events"
	waits, err := db.q.LifecycleWaits(ctx, db.pool)
	if err != nil || !waits {
		return false, fault(doing, err)
	}
	err = db.inTx(ctx, doing, pgx.TxOptions{}, func(tx pgx.Tx) error {
		before, err := db.q.LifecycleLock(ctx, tx)
		if isNoRows(err) {
			return nil
		}
		if err != nil {
			return err
		}
		// A separate statement, whose snapshot begins after the lock was acquired: it sees the
		// changes of the previous holder.
		after, err := db.q.LifecycleNumber(ctx, tx, lifecycleBatch)
		numbered = after > before
		return err
	})
	return numbered, err
}

// LifecycleRead returns the events after a position that match a filter, at most limit and about 1
// MiB. It reads a bounded number of events, so a page may be empty although more follow. Errors:
// *eventlog.PositionGoneError if later events have been deleted, *eventlog.FuturePositionError.
func (db *DB) LifecycleRead(ctx context.Context, after int64, filter lifecycle.Filter, limit int) (page lifecycle.Page, err error) {
	var position error // the error of a position that cannot be read from
	err = db.inTx(ctx, "read lifecycle events", pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		page, position, err = db.lifecycleRead(ctx, tx, after, filter, limit)
		return err
	})
	return page, cmp.Or(err, position)
}

func (db *DB) lifecycleRead(ctx context.Context, tx pgx.Tx, after int64, filter lifecycle.Filter, limit int) (page lifecycle.Page, position, err error) {
	bounds, err := db.q.LifecycleBounds(ctx, tx)
	switch {
	case err != nil:
		return page, nil, err
	case after > bounds.N:
		return page, &eventlog.FuturePositionError{Newest: bounds.N}, nil
	case after < bounds.Kept:
		return page, &eventlog.PositionGoneError{First: bounds.Kept + 1}, nil
	}
	most := min(max(limit, 1), lifecyclePage)
	if !filter.All() {
		most = lifecyclePage
	}
	scanned, err := db.q.LifecycleScan(ctx, tx, &dbsqlc.LifecycleScanParams{
		AfterN: after, MaxItems: int32(most), Types: typeNames(filter.Types), SessionID: filter.SessionID, Agent: filter.Agent, Metadata: filterMetadata(filter),
	})
	if err != nil {
		return page, nil, err
	}
	var positions []int64
	bytes := int64(0)
	page.Position, page.CaughtUp = bounds.N, true
	for i, row := range scanned {
		if row.Selected && bytes > 0 && bytes+row.Bytes > lifecycleBytes {
			page.Position, page.CaughtUp = scanned[i-1].N, false
			break
		}
		if row.Selected {
			positions = append(positions, row.N)
			bytes += row.Bytes
		}
		page.Position = max(page.Position, row.N) // bounds is older than the rows if the transaction sees later commits
		if len(positions) >= limit || i == most-1 {
			page.Position, page.CaughtUp = row.N, row.N >= bounds.N
			break
		}
	}
	if len(positions) == 0 {
		return page, nil, nil
	}
	rows, err := db.q.LifecycleRead(ctx, tx, positions)
	for _, row := range rows {
		if e, ok := lifecycleEvent(row); ok && filter.Selects(e) {
			page.Events = append(page.Events, e)
		}
	}
	return page, nil, err
}

// lifecycleEvent converts a row; false if the event's session has been erased.
func lifecycleEvent(row dbsqlc.LifecycleReadRow) (e lifecycle.Event, ok bool) {
	if row.SessionID == nil {
		return e, false
	}
	e = lifecycle.Event{Position: row.N, Type: lifecycle.Type(row.Type), At: row.At.UTC(), Seq: row.Seq, Session: lifecycle.Subject{
		ID: *row.SessionID, Agent: *row.Agent, Title: *row.Title, Status: session.State(*row.Status), Metadata: row.Metadata,
	}}
	if row.Data != "" {
		e.Data = json.RawMessage(row.Data)
	}
	return e, true
}

// LifecycleNewest returns the position of the newest event; 0 before the first.
func (db *DB) LifecycleNewest(ctx context.Context) (int64, error) {
	bounds, err := db.q.LifecycleBounds(ctx, db.pool)
	return bounds.N, fault("read lifecycle events", err)
}

// LifecycleDelete deletes a bounded number of events from before a time, and reports whether more
// may remain.
func (db *DB) LifecycleDelete(ctx context.Context, before time.Time) (more bool, err error) {
	n, err := db.q.LifecycleDelete(ctx, db.pool, &dbsqlc.LifecycleDeleteParams{MaxItems: lifecycleBatch, Before: before})
	return n == lifecycleBatch, fault("delete lifecycle events", err)
}
