package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/breaker"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// BreakerTry reports whether the sandbox of a session may start at a provider now. If not, it
// returns the breaker, and how long to wait before the next try. It locks rows only if the breaker
// is open.
func (db *DB) BreakerTry(ctx context.Context, provider, sessionID string) (b breaker.Breaker, wait time.Duration, err error) {
	open, err := db.q.BreakerIsOpen(ctx, db.pool, &dbsqlc.BreakerIsOpenParams{SessionID: sessionID, Provider: provider})
	if err != nil || !open {
		return b, 0, fault("read the breaker of a start", err)
	}
	err = db.withBreaker(ctx, "try a start", provider, sessionID, func(tx breakerTx) error {
		b = tx.Breaker
		ok, until := b.Try(tx.start, tx.now)
		if !ok {
			wait = until.Sub(tx.now)
			return nil
		}
		if !b.Open() {
			return nil
		}
		return tx.store(ctx, b)
	})
	return b, wait, err
}

// BreakerFail counts a failed start. It reports whether that opened the breaker.
func (db *DB) BreakerFail(ctx context.Context, provider, sessionID, reason string) (opened bool, err error) {
	reason = text(strings.ReplaceAll(reason, sessionID, "a session")) // other sessions show it, and it outlives this one
	err = db.withBreaker(ctx, "count a failed start", provider, sessionID, func(tx breakerTx) error {
		if !tx.exists {
			added, err := tx.q.BreakerAdd(ctx, tx.tx, &dbsqlc.BreakerAddParams{
				Provider: provider, Agent: tx.Agent, FailedAt: tx.now, FailedBy: tx.start, Reason: reason,
			})
			if err != nil || added > 0 {
				return err
			}
			if err := tx.lock(ctx); err != nil { // another start failed at the same time
				return err
			}
		}
		b := tx.Breaker
		opened = b.Fail(tx.start, reason, tx.now)
		return tx.store(ctx, b)
	})
	return opened, err
}

// BreakerRelease ends the trial of a start whose result does not reflect on the provider, such as
// one that was cancelled.
func (db *DB) BreakerRelease(ctx context.Context, provider, sessionID string) error {
	return db.withBreaker(ctx, "end a trial", provider, sessionID, func(tx breakerTx) error {
		b := tx.Breaker
		if !b.Release(tx.start) {
			return nil
		}
		return tx.store(ctx, b)
	})
}

// BreakerClose resets the failures after a successful start. It returns since when the breaker was
// open; zero if it was closed.
func (db *DB) BreakerClose(ctx context.Context, provider, sessionID string) (openedAt time.Time, err error) {
	rows, err := db.q.BreakerClose(ctx, db.pool, &dbsqlc.BreakerCloseParams{SessionID: sessionID, Provider: provider})
	if err != nil || len(rows) == 0 {
		return time.Time{}, fault("close a breaker", err)
	}
	return orZero(rows[0]), nil
}

// BreakersOpen lists the breakers that are open.
func (db *DB) BreakersOpen(ctx context.Context) ([]breaker.Breaker, error) {
	ctx, cancel := within(ctx, db.options.CallTimeout)
	defer cancel()
	rows, err := db.q.BreakersOpen(ctx, db.pool)
	if err != nil {
		return nil, fault("list open breakers", err)
	}
	breakers := make([]breaker.Breaker, len(rows))
	for i, row := range rows {
		breakers[i] = breakerOf(row)
	}
	return breakers, nil
}

// startWaits sets the open breaker for which starting sessions wait. An agent has one provider at a
// time; if there are several breakers, the newest counts.
func (db *DB) startWaits(ctx context.Context, tx dbsqlc.DBTX, sessions []*session.Session) error {
	if len(sessions) == 0 {
		return nil
	}
	rows, err := db.q.BreakersOpen(ctx, tx)
	if err != nil {
		return err
	}
	for _, row := range rows {
		b := breakerOf(row)
		for _, s := range sessions {
			if s.Agent == b.Agent && (s.StartWait == nil || s.StartWait.Since.Before(b.OpenedAt)) {
				s.StartWait = b.Waits()
			}
		}
	}
	return nil
}

// starting selects the sessions that are starting.
func starting(sessions []session.Session) (starting []*session.Session) {
	for i := range sessions {
		if sessions[i].Starts() {
			starting = append(starting, &sessions[i])
		}
	}
	return starting
}

// breakerTx is a transaction that has locked the breaker for a start, if the breaker exists.
type breakerTx struct {
	breaker.Breaker
	tx     pgx.Tx
	q      *dbsqlc.Queries
	exists bool
	start  string // name of the session's start in the breaker
	now    time.Time
}

func (db *DB) withBreaker(ctx context.Context, doing, provider, sessionID string, do func(breakerTx) error) error {
	return db.inTx(ctx, doing, pgx.TxOptions{}, func(tx pgx.Tx) error {
		key, err := db.q.BreakerKey(ctx, tx, sessionID)
		if isNoRows(err) {
			return noSession(sessionID)
		}
		if err != nil {
			return err
		}
		b := breakerTx{Breaker: breaker.Breaker{Provider: provider, Agent: key.Agent}, tx: tx, q: db.q, start: key.Start, now: key.At}
		if err := b.lock(ctx); err != nil {
			return err
		}
		return do(b)
	})
}

func (t *breakerTx) lock(ctx context.Context) error {
	rows, err := t.q.BreakerLock(ctx, t.tx, &dbsqlc.BreakerLockParams{Provider: t.Provider, Agent: t.Agent})
	if err != nil || len(rows) == 0 {
		return err
	}
	t.Breaker, t.exists = breakerOf(rows[0]), true
	return nil
}

func (t *breakerTx) store(ctx context.Context, b breaker.Breaker) error {
	return t.q.BreakerStore(ctx, t.tx, &dbsqlc.BreakerStoreParams{
		Provider: b.Provider, Agent: b.Agent, Failures: int32(b.Failures), Trials: int32(b.Trials), //nolint:gosec // they are few
		FailedAt: b.FailedAt, FailedBy: b.FailedBy, Reason: b.Reason,
		OpenedAt: orNil(b.OpenedAt), RetryAt: orNil(b.RetryAt), TrialBy: b.TrialBy, TrialUntil: orNil(b.TrialUntil),
	})
}

func breakerOf(row dbsqlc.Breaker) breaker.Breaker {
	return breaker.Breaker{
		Provider: row.Provider, Agent: row.Agent, Failures: int(row.Failures), Trials: int(row.Trials),
		FailedAt: row.FailedAt, FailedBy: row.FailedBy, Reason: row.Reason,
		OpenedAt: orZero(row.OpenedAt), RetryAt: orZero(row.RetryAt), TrialBy: row.TrialBy, TrialUntil: orZero(row.TrialUntil),
	}
}
