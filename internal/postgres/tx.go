package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// rollbackTimeout bounds the clean-up after a caller has given up.
const rollbackTimeout = 5 * time.Second

// inTx runs do in one transaction and commits it if do returns nil.
func (db *DB) inTx(ctx context.Context, doing string, o pgx.TxOptions, do func(pgx.Tx) error) error {
	ctx, cancel := within(ctx, db.options.CallTimeout)
	defer cancel()
	tx, err := db.pool.BeginTx(ctx, o)
	if err != nil {
		return fault(doing, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		tx.Rollback(ctx) //nolint:errcheck // after a commit there is nothing to roll back
	}()
	if limit := db.statementLimit(ctx); limit != "" {
		if _, err := tx.Exec(ctx, limit); err != nil {
			return fault(doing, err)
		}
	}
	if err := do(tx); err != nil {
		return fault(doing, err)
	}
	return fault(doing, tx.Commit(ctx))
}

// inTwoTrips runs a transaction in two round trips: read queries everything that it must know,
// together with the statements that begin the transaction, and write queues all changes, together
// with the commit. Locks are held from the one to the other, and delay every other transaction that
// needs them: under load, round trips are the cost.
func (db *DB) inTwoTrips(ctx context.Context, doing string, begin []string, read func(*lookups) error, write func(*pipeline) error) error {
	ctx, cancel := within(ctx, db.options.CallTimeout)
	defer cancel()
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return fault(doing, err)
	}
	defer conn.Release() // a connection that is still in a transaction is closed by it
	var in lookups
	var out pipeline
	err = in.send(ctx, conn.Conn(), begin, read)
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
	conn.Exec(ctx, "rollback") //nolint:errcheck // the error that broke the transaction is returned
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
	// advanced is the position that a statement in later has stored already.
	advanced int64
	// grown: events were written, of which readers must be notified after the commit.
	grown bool
	// steers: a prompt waits for the running turn, of which its attempt must be notified after the commit.
	steers bool
}

// errLocked means that another transaction holds the session.
var errLocked = errors.New("the session is locked")

// Waiting for a session that another transaction holds.
const (
	minLockPause = 2 * time.Millisecond
	maxLockPause = 100 * time.Millisecond
	// lockTurn is how long a connection waits for one lock before it lets another call wait.
	lockTurn = 2 * time.Second
)

// inSession locks the session, runs do, and writes the events that do has added
// in the same transaction. session_not_found where there is no such session. The
// lock goes with the begin, the events with the commit, a round trip each.
// stale_workflow for a context of a workflow run after another one has opened the session.
//
// A session that another transaction holds is waited for without harm to other
// sessions: a quarter of the pool's connections at most wait for locks, the other
// calls look again after a pause and hold none meanwhile. It must not be nested.
func (db *DB) inSession(ctx context.Context, doing, sessionID string, do func(*sessionTx) error) error {
	return db.inSessionWith(ctx, doing, sessionID, nil, do)
}

// inSessionWith is inSession for a do that begins by reading: what read asks for is read in the round trip of the
// lock, after it. read is called as lookups says, again with every try for the lock, and must not return the error of a
// row that is missing.
func (db *DB) inSessionWith(
	ctx context.Context, doing, sessionID string, read func(*lookups) error, do func(*sessionTx) error,
) error {
	ctx, cancel := within(ctx, db.options.CallTimeout)
	defer cancel()
	leave, err := db.gates.enter(ctx, sessionID)
	if err != nil {
		return fault(doing, err)
	}
	defer leave()
	err = db.trySession(ctx, sessionID, 0, read, do)
	if !errors.Is(err, errLocked) {
		return fault(doing, err)
	}
	limit, turn := ctx, lockTurn
	if db.options.LockTimeout > 0 {
		limit, cancel = context.WithTimeout(ctx, db.options.LockTimeout)
		defer cancel()
		turn = min(turn, db.options.LockTimeout)
	}
	for pause := minLockPause; ; pause = min(2*pause, maxLockPause) {
		if db.lockWait.TryAcquire(1) {
			err = db.trySession(ctx, sessionID, turn, read, do)
			db.lockWait.Release(1)
		} else {
			err = db.trySession(ctx, sessionID, 0, read, do)
		}
		if !errors.Is(err, errLocked) {
			return fault(doing, err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-limit.Done():
			timer.Stop()
			return busy(sessionID, err)
		}
	}
}

// trySession is inSession for a session that is free, or becomes free within wait; else errLocked,
// and nothing was done.
func (db *DB) trySession(
	ctx context.Context, sessionID string, wait time.Duration, read func(*lookups) error, do func(*sessionTx) error,
) error {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // a connection that is still in a transaction is closed by it
	s := &sessionTx{Conn: conn.Conn(), q: db.q}
	begin := []string{"begin"}
	if limit := db.statementLimit(ctx); limit != "" {
		begin = append(begin, limit)
	}
	if wait > 0 {
		begin = append(begin, "set local lock_timeout = "+milliseconds(wait))
	}
	var in lookups
	var readErr error
	err = in.send(ctx, s.Conn, begin, func(in *lookups) error {
		var lockErr, clockErr error
		if wait > 0 {
			s.row, lockErr = db.q.SessionLock(ctx, in, sessionID)
		} else {
			var row dbsqlc.SessionTryLockRow
			row, lockErr = db.q.SessionTryLock(ctx, in, sessionID)
			s.row = dbsqlc.SessionLockRow(row)
		}
		var now dbsqlc.SessionClockRow
		now, clockErr = db.q.SessionClock(ctx, in) // after the lock, so that times follow the order of events
		s.now = now.Now.UTC()
		if read != nil {
			readErr = read(in)
		}
		return cmp.Or(lockErr, clockErr)
	})
	switch {
	case err == nil:
		if err = cmp.Or(checkWorkflow(ctx, s.row.WorkflowRun), readErr); err == nil {
			err = do(s)
		}
	case isNoRows(err) && wait == 0:
		err = db.lockedOrNone(ctx, s.Conn, sessionID)
	case isNoRows(err):
		err = noSession(sessionID)
	case wait > 0 && isLockTimeout(err):
		err = errLocked
	}
	if err == nil {
		err = s.commit(ctx)
		if s.grown { // also after an error: the answer to the commit may have been lost
			db.readers.notify(sessionID) //nolint:contextcheck // the notifier outlives the call
		}
		if s.steers {
			db.readers.notify(run.SteerTopic(sessionID)) //nolint:contextcheck // as above
		}
	}
	if err != nil {
		rollback(ctx, s.Conn)
	}
	return err
}

// checkWorkflow refuses what a run of the session's workflow asks for when another one has opened the session
// since. It lets every run pass until one has opened the session.
func checkWorkflow(ctx context.Context, opened string) error {
	if asks := session.WorkflowRunOf(ctx); asks != "" && opened != "" && asks != opened {
		return failure.Errorf(failure.StaleWorkflow, "workflow run %s is stale: run %s has opened the session since", asks, opened)
	}
	return nil
}

// WorkflowCheck returns stale_workflow if the context is of a workflow run and another one has opened the session
// since. Requests that change something at the provider ask before they do.
func (db *DB) WorkflowCheck(ctx context.Context, sessionID string) error {
	if session.WorkflowRunOf(ctx) == "" {
		return nil
	}
	const doing = "check the workflow of a session"
	ctx, cancel := within(ctx, db.options.CallTimeout)
	defer cancel()
	opened, err := db.q.SessionWorkflowRun(ctx, db.pool, sessionID)
	switch {
	case isNoRows(err):
		return noSession(sessionID)
	case err != nil:
		return fault(doing, err)
	}
	return checkWorkflow(ctx, opened)
}

// lockedOrNone says why a session could not be locked.
func (db *DB) lockedOrNone(ctx context.Context, conn *pgx.Conn, sessionID string) error {
	exists, err := db.q.SessionExists(ctx, conn, sessionID)
	switch {
	case err != nil:
		return err
	case exists:
		return errLocked
	}
	return noSession(sessionID)
}

// clock is the server's time, in UTC and as fine as Postgres keeps it.
func clock(ctx context.Context, q *dbsqlc.Queries, db dbsqlc.DBTX) (time.Time, error) {
	at, err := q.Clock(ctx, db)
	return at.UTC(), err
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
	ctx, cancel := within(ctx, db.options.CallTimeout)
	defer cancel()
	sessionID, known := db.runs.get(runID)
	if !known {
		found, err := db.q.RunGet(ctx, db.pool, runID)
		if isNoRows(err) {
			return noRun(runID)
		}
		if err != nil {
			return fault(doing, err)
		}
		sessionID = found.SessionID
		db.runs.remember(runID, sessionID)
	}
	var run dbsqlc.Run
	read := func(in *lookups) (err error) {
		if run, err = db.q.RunGet(ctx, in, runID); isNoRows(err) {
			return noRun(runID)
		}
		return err
	}
	return db.inSessionWith(ctx, doing, sessionID, read, func(s *sessionTx) error { return do(s, run) })
}

// runSessions remembers the sessions of runs, which do not change.
type runSessions struct {
	mu sync.Mutex
	of map[string]string
}

// maxRunSessions bounds what is remembered.
const maxRunSessions = 10_000

func (r *runSessions) get(runID string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sessionID, ok := r.of[runID]
	return sessionID, ok
}

func (r *runSessions) remember(runID, sessionID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil || len(r.of) >= maxRunSessions {
		r.of = map[string]string{}
	}
	r.of[runID] = sessionID
}

// add puts an event at the end of the session's log. A terminated session has
// had its last event.
func (s *sessionTx) add(kind, runID string, data any) error {
	_, err := s.addSized(kind, runID, data)
	return err
}

// addSized is add, and returns the bytes of the event's data.
func (s *sessionTx) addSized(kind, runID string, data any) (int, error) {
	if session.State(s.row.Status).Final() {
		return 0, nil
	}
	body, err := conversation.Encode(data)
	if err != nil {
		return 0, fmt.Errorf("data of a %s event: %w", kind, err)
	}
	s.row.LastSeq++
	s.log.add(eventRow{
		SessionNo: s.row.No, Seq: s.row.LastSeq, Type: kind, RunID: runID, RunNo: runNo(runID), At: s.now, Data: string(body),
	})
	return len(body), nil
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
	s.grown = true
	if s.advanced < s.row.LastSeq {
		if err := s.q.SessionAdvance(ctx, &s.later, &dbsqlc.SessionAdvanceParams{ID: s.row.ID, LastSeq: s.row.LastSeq}); err != nil {
			return err
		}
	}
	return s.log.insert(ctx, s.q, &s.later)
}

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

func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
