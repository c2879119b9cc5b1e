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

// rollbackTimeout bounds the clean-up after the caller's context has ended.
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
		tx.Rollback(ctx) //nolint:errcheck // does nothing after a commit
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

// inTwoTrips runs a transaction in two round trips: the first sends the statements that begin it
// and all queries of read, the second all changes that write queues and the commit. Locks are held
// between the two and delay every other transaction that needs them: under load, round trips
// dominate the cost.
func (db *DB) inTwoTrips(ctx context.Context, doing string, begin []string, read func(*lookups) error, write func(*pipeline) error) error {
	ctx, cancel := within(ctx, db.options.CallTimeout)
	defer cancel()
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return fault(doing, err)
	}
	defer conn.Release() // closes a connection that is still in a transaction
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

// inOneTrip runs queries that find their rows by key in one round trip, which is one transaction.
// They are planned once per connection: see genericPlans. By default Postgres plans the read of a
// session or prompt each time, which takes ten times as long as its execution. ask is called as
// described at lookups.
func (db *DB) inOneTrip(ctx context.Context, ask func(*lookups) error) error {
	ctx, cancel := within(ctx, db.options.CallTimeout)
	defer cancel()
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	var in lookups
	return in.send(ctx, conn.Conn(), []string{genericPlans}, ask)
}

func rollback(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	conn.Exec(ctx, "rollback") //nolint:errcheck // the error that aborted the transaction is returned
}

// sessionTx is a transaction that holds the lock of one session and may append to its log.
type sessionTx struct {
	*pgx.Conn
	q   *dbsqlc.Queries
	row dbsqlc.SessionLockRow // as read with the lock; callers keep it up to date
	now time.Time
	log eventRows
	// later collects statements on which nothing else in the transaction depends: they are sent
	// with the events.
	later pipeline
	// advanced is the position that a statement in later stores.
	advanced int64
	// grown reports that events were written, so that readers must be notified after the commit.
	grown bool
	from  origin // of the events
	// run is the id of a run that exists; "" if no run is known to exist.
	run string
	// steers reports that a prompt waits for the running turn, whose attempt must be notified after
	// the commit.
	steers bool
}

// errLocked means that another transaction has locked the session.
var errLocked = errors.New("the session is locked")

// Bounds on waiting for a session that another transaction has locked.
const (
	minLockPause = 2 * time.Millisecond
	maxLockPause = 100 * time.Millisecond
	// lockTurn is how long a connection waits for a lock before another call may wait.
	lockTurn = 2 * time.Second
)

// inSession locks the session, runs do, and writes the events that do adds in the same transaction.
// It sends the lock with the begin, and the events with the commit, each in one round trip. It
// returns session_not_found if the session does not exist, and stale_workflow if the context
// belongs to a workflow run and another one has opened the session since.
//
// Waiting for a locked session does not delay other sessions: at most a quarter of the pool's
// connections wait for locks; other calls retry after a pause, during which they hold no
// connection. Calls must not be nested.
func (db *DB) inSession(ctx context.Context, doing, sessionID string, do func(*sessionTx) error) error {
	return db.inSessionWith(ctx, doing, sessionID, nil, do)
}

// inSessionWith is inSession for a do that begins by reading: the queries of read are sent in the
// same round trip as the lock, after it. read is called as described at lookups, again for every
// attempt to get the lock, and must not return an error for a missing row.
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

// trySession is inSession for a session that is not locked, or becomes free within wait; otherwise
// it returns errLocked and has done nothing.
func (db *DB) trySession(
	ctx context.Context, sessionID string, wait time.Duration, read func(*lookups) error, do func(*sessionTx) error,
) error {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // closes a connection that is still in a transaction
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
		var lockErr error
		if wait > 0 {
			s.row, lockErr = db.q.SessionLock(ctx, in, sessionID)
		} else {
			var row dbsqlc.SessionTryLockRow
			row, lockErr = db.q.SessionTryLock(ctx, in, sessionID)
			s.row = dbsqlc.SessionLockRow(row)
		}
		s.now = s.row.Now.UTC() // read after the lock, so that times follow the order of events
		if read != nil {
			readErr = read(in)
		}
		return lockErr
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
		switch {
		case !s.grown:
		case err == nil:
			db.readers.publish(s.from, s.log.events) //nolint:contextcheck // the notifier outlives the call
		default: // the response to the commit may have been lost
			db.readers.notify(s.from, sessionID) //nolint:contextcheck // as above
		}
		if s.steers {
			db.readers.notify(outside, run.SteerTopic(sessionID)) //nolint:contextcheck // as above
		}
	}
	if err != nil {
		rollback(ctx, s.Conn)
	}
	return err
}

// checkWorkflow refuses a request of a workflow run if another one has opened the session since.
// Until a run has opened the session, it accepts every run.
func checkWorkflow(ctx context.Context, opened string) error {
	if asks := session.WorkflowRunOf(ctx); asks != "" && opened != "" && asks != opened {
		return failure.Errorf(failure.StaleWorkflow, "workflow run %s is stale: run %s has opened the session since", asks, opened)
	}
	return nil
}

// WorkflowCheck returns stale_workflow if the context belongs to a workflow run and another one has
// opened the session since. Requests that change something at the provider call it first.
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

// lockedOrNone returns why a session could not be locked.
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

// clock returns the server's time, in UTC and with the precision of Postgres.
func clock(ctx context.Context, q *dbsqlc.Queries, db dbsqlc.DBTX) (time.Time, error) {
	at, err := q.Clock(ctx, db)
	return at.UTC(), err
}

// commit writes the remaining changes and commits.
func (s *sessionTx) commit(ctx context.Context) error {
	if err := s.queueEvents(ctx); err != nil {
		return err
	}
	s.later.batch.Queue("commit")
	return s.later.send(ctx, s.Conn)
}

// inRun is inSession for the session of a run, and passes the run to do.
func (db *DB) inRun(ctx context.Context, doing, runID string, do func(*sessionTx, dbsqlc.Run) error) error {
	return db.inRunWith(ctx, doing, runID, func(runKey, *lookups) error { return nil }, do)
}

// inRunWith is inRun for a do that begins by reading. read is called as described at inSessionWith,
// with the run's key, which may be outdated.
func (db *DB) inRunWith(
	ctx context.Context, doing, runID string, read func(runKey, *lookups) error, do func(*sessionTx, dbsqlc.Run) error,
) error {
	ctx, cancel := within(ctx, db.options.CallTimeout)
	defer cancel()
	key, err := db.runKey(ctx, doing, runID)
	if err != nil {
		return err
	}
	var run dbsqlc.Run
	both := func(in *lookups) (err error) {
		if run, err = db.q.RunGet(ctx, in, runID); isNoRows(err) {
			err = noRun(runID)
		}
		return cmp.Or(err, read(key, in))
	}
	return db.inSessionWith(ctx, doing, key.sessionID, both, func(s *sessionTx) error {
		s.run = run.ID
		return do(s, run)
	})
}

// runKey names what a run belongs to. Only its generation can change, when a parked run continues.
type runKey struct {
	sessionID, promptID string
	generation          int64
}

func keyOf(run dbsqlc.Run) runKey {
	return runKey{sessionID: run.SessionID, promptID: run.PromptID, generation: run.Generation}
}

func (db *DB) runKey(ctx context.Context, doing, runID string) (runKey, error) {
	if key, known := db.runs.get(runID); known {
		return key, nil
	}
	found, err := db.q.RunGet(ctx, db.pool, runID)
	if isNoRows(err) {
		return runKey{}, noRun(runID)
	}
	if err != nil {
		return runKey{}, fault(doing, err)
	}
	db.runs.remember(runID, keyOf(found))
	return keyOf(found), nil
}

// runKeys caches the keys of runs.
type runKeys struct {
	mu sync.Mutex
	of map[string]runKey
}

// maxRunKeys bounds the cache.
const maxRunKeys = 10_000

func (r *runKeys) get(runID string) (runKey, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key, ok := r.of[runID]
	return key, ok
}

func (r *runKeys) remember(runID string, key runKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil || len(r.of) >= maxRunKeys {
		r.of = map[string]runKey{}
	}
	r.of[runID] = key
}

// add appends an event to the session's log. A terminated session accepts none.
func (s *sessionTx) add(kind, runID string, data any) error {
	_, err := s.addSized(kind, runID, data)
	return err
}

// addSized is add, and returns the size of the event's data in bytes.
func (s *sessionTx) addSized(kind, runID string, data any) (int, error) {
	if session.State(s.row.Status).Final() {
		return 0, nil
	}
	body, err := conversation.Encode(data)
	if err != nil {
		return 0, fmt.Errorf("data of a %s event: %w", kind, err)
	}
	s.row.LastSeq++
	s.log.add(&eventRow{
		SessionID: s.row.ID, SessionNo: s.row.No, Seq: s.row.LastSeq, Type: kind, RunID: runID, RunNo: runNo(runID), RunExists: runID == s.run,
		At: s.now, Data: string(body),
	})
	return len(body), nil
}

// sendLater executes the collected statements, because a statement depends on them or they are
// large.
func (s *sessionTx) sendLater(ctx context.Context) error {
	if s.later.batch.Len() == 0 {
		return nil
	}
	err := s.later.send(ctx, s.Conn)
	s.later = pipeline{}
	return err
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

// text makes a string storable: Postgres accepts neither NUL nor invalid UTF-8 in a text.
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
