package postgres

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// rollbackTimeout bounds the clean-up after a caller has given up.
const rollbackTimeout = 5 * time.Second

// inTx runs do in one transaction and commits it if do returns nil.
func (db *DB) inTx(ctx context.Context, doing string, o pgx.TxOptions, do func(pgx.Tx) error) error {
	tx, err := db.pool.BeginTx(ctx, o)
	if err != nil {
		return fault(doing, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		tx.Rollback(ctx) //nolint:errcheck // after a commit there is nothing to roll back
	}()
	if err := do(tx); err != nil {
		return fault(doing, err)
	}
	return fault(doing, tx.Commit(ctx))
}

// inTwoTrips runs a transaction in two round trips: read asks for all that it
// must know, which goes with the begin, and write queues all that it changes,
// which goes with the commit. Locks are held from the one to the other, and with
// them everybody else who wants them: under load it is round trips that cost.
func (db *DB) inTwoTrips(ctx context.Context, doing string, read func(*lookups) error, write func(*pipeline) error) error {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return fault(doing, err)
	}
	defer conn.Release() // a connection that is still in a transaction is closed by it
	var in lookups
	var out pipeline
	err = in.send(ctx, conn.Conn(), "begin", read)
	if err == nil {
		err = write(&out)
	}
	if err == nil {
		out.batch.Queue("commit")
		err = out.send(ctx, conn.Conn())
	}
	if err != nil {
		rollback(ctx, conn.Conn())
	}
	return fault(doing, err)
}

func rollback(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	conn.Exec(ctx, "rollback") //nolint:errcheck // what broke the transaction is told
}

// sessionTx is a transaction that holds the lock of one session and may add to
// its log.
type sessionTx struct {
	*pgx.Conn
	q   *dbsqlc.Queries
	row dbsqlc.SessionLockRow // as it was when it was locked; callers keep it true
	now time.Time
	log eventRows
	// later takes statements that nothing else in the transaction waits for: they
	// are sent with the events.
	later pipeline
}

// inSession locks the session, runs do, and writes the events that do has added
// in the same transaction. session_not_found where there is no such session. The
// lock goes with the begin, the events with the commit, a round trip each.
func (db *DB) inSession(ctx context.Context, doing, sessionID string, do func(*sessionTx) error) error {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return fault(doing, err)
	}
	defer conn.Release() // a connection that is still in a transaction is closed by it
	s := &sessionTx{Conn: conn.Conn(), q: db.q}
	var in lookups
	err = in.send(ctx, s.Conn, "begin", func(in *lookups) (err error) {
		s.row, err = db.q.SessionLock(ctx, in, sessionID)
		return err
	})
	if isNoRows(err) {
		err = noSession(sessionID)
	}
	if err == nil {
		s.now = now() // under the lock, so that times follow the order of events
		err = do(s)
	}
	if err == nil {
		err = s.commit(ctx)
	}
	if err != nil {
		rollback(ctx, s.Conn)
	}
	return fault(doing, err)
}

// commit writes what is left to be written, and commits.
func (s *sessionTx) commit(ctx context.Context) error {
	if err := s.queueEvents(ctx); err != nil {
		return err
	}
	s.later.batch.Queue("commit")
	return s.later.send(ctx, s.Conn)
}

// inRun is inSession for the session of a run, with the run as it stands.
func (db *DB) inRun(ctx context.Context, doing, runID string, do func(*sessionTx, dbsqlc.Run) error) error {
	found, err := db.q.RunGet(ctx, db.pool, runID)
	if isNoRows(err) {
		return noRun(runID)
	}
	if err != nil {
		return fault(doing, err)
	}
	return db.inSession(ctx, doing, found.SessionID, func(s *sessionTx) error {
		run, err := db.q.RunGet(ctx, s, runID)
		if err != nil {
			return err
		}
		return do(s, run)
	})
}

// add puts an event at the end of the session's log. A terminated session has
// had its last event.
func (s *sessionTx) add(kind, runID string, data any) error {
	if session.State(s.row.Status).Final() {
		return nil
	}
	body, err := conversation.Encode(data)
	if err != nil {
		return fmt.Errorf("data of a %s event: %w", kind, err)
	}
	s.row.LastSeq++
	s.log.add(eventRow{
		SessionID: s.row.ID, Seq: s.row.LastSeq, Type: kind, RunID: runID, Frame: noFrame, At: s.now, Data: string(body),
	})
	return nil
}

func (s *sessionTx) flush(ctx context.Context) error {
	if err := s.queueEvents(ctx); err != nil || s.later.batch.Len() == 0 {
		return err
	}
	return s.later.send(ctx, s.Conn)
}

func (s *sessionTx) queueEvents(ctx context.Context) error {
	if len(s.log.Seqs) == 0 {
		return nil
	}
	return cmp.Or(
		s.q.SessionAdvance(ctx, &s.later, &dbsqlc.SessionAdvanceParams{ID: s.row.ID, LastSeq: s.row.LastSeq}),
		s.q.EventsInsert(ctx, &s.later, s.log.params()),
		s.q.EventsNotify(ctx, &s.later, &dbsqlc.EventsNotifyParams{Channel: channel, Payload: s.row.ID}),
	)
}

// now is the time that is stored: in UTC and as fine as Postgres keeps it.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// text makes foreign words storable: Postgres takes no NUL in a text and no
// invalid UTF-8.
func text(words string) string {
	if strings.IndexByte(words, 0) >= 0 {
		words = strings.ReplaceAll(words, "\x00", "\uFFFD")
	}
	if !utf8.ValidString(words) {
		words = strings.ToValidUTF8(words, "\uFFFD")
	}
	return words
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
