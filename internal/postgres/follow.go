package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
)

// EventsPage returns at most limit events after a position, in order and without
// a gap, and ends with the one that brings their data to eventlog.PageBytes. A *eventlog.PositionGoneError or *eventlog.FuturePositionError says that
// the position is not one to read from; session_not_found that there is no log.
func (db *DB) EventsPage(ctx context.Context, sessionID string, after int64, limit int) ([]eventlog.Event, error) {
	const doing = "read events"
	rows, err := db.q.EventsPage(ctx, db.pool, &dbsqlc.EventsPageParams{SessionID: sessionID, AfterSeq: after, MaxItems: int32(limit), MaxBytes: eventlog.PageBytes})
	if err != nil {
		return nil, fault(doing, err)
	}
	if len(rows) == 0 || rows[0].Seq != after+1 {
		bounds, err := db.q.EventsBounds(ctx, db.pool, sessionID)
		if isNoRows(err) {
			return nil, noSession(sessionID)
		}
		if err != nil {
			return nil, fault(doing, err)
		}
		if after < bounds.FirstSeq-1 {
			return nil, &eventlog.PositionGoneError{First: bounds.FirstSeq}
		}
		if after > bounds.LastSeq {
			return nil, &eventlog.FuturePositionError{Newest: bounds.LastSeq}
		}
	}
	events := make([]eventlog.Event, len(rows))
	for i, row := range rows {
		events[i] = eventlog.Event{
			Seq: row.Seq, Type: row.Type, SessionID: sessionID, ConversationID: row.ConversationID,
			RunID: row.RunID, At: row.At.UTC(), Data: row.Data,
		}
	}
	return events, nil
}

// EventsPosition is the newest seq of a session; 0 before the first event.
func (db *DB) EventsPosition(ctx context.Context, sessionID string) (int64, error) {
	bounds, err := db.q.EventsBounds(ctx, db.pool, sessionID)
	if isNoRows(err) {
		return 0, noSession(sessionID)
	}
	return bounds.LastSeq, fault("read a position", err)
}

// EventsPositions is the newest seq of each of the sessions that exist.
func (db *DB) EventsPositions(ctx context.Context, sessionIDs []string) (map[string]int64, error) {
	rows, err := db.q.EventsPositions(ctx, db.pool, sessionIDs)
	if err != nil {
		return nil, fault("read positions", err)
	}
	out := make(map[string]int64, len(rows))
	for _, row := range rows {
		out[row.ID] = row.LastSeq
	}
	return out, nil
}

// EventsPrune deletes a session's events up to and with a position. Readers
// behind it are told that their position is gone. The newest event stays.
func (db *DB) EventsPrune(ctx context.Context, sessionID string, through int64) error {
	ctx, cancel := db.bulk(ctx)
	defer cancel()
	return db.inSession(ctx, "prune events", sessionID, func(s *sessionTx) error {
		through = min(through, s.row.LastSeq-1)
		if through < 1 {
			return nil
		}
		// The text of open blocks is in events until it is stored with them.
		if err := s.settleBlocks(ctx); err != nil {
			return err
		}
		if err := s.q.EventsPrune(ctx, s, &dbsqlc.EventsPruneParams{SessionNo: s.row.No, Through: through}); err != nil {
			return err
		}
		return s.q.EventsSetFirst(ctx, s, &dbsqlc.EventsSetFirstParams{ID: sessionID, FirstSeq: through + 1})
	})
}

// listenCheck is how long a listening connection may be silent before it is asked
// whether it is still there.
const listenCheck = 15 * time.Second

// EventsListen tells of commits as they happen, until ctx ends or the connection,
// one of its own, is lost: it always returns an error. It calls ready once when
// nothing that is committed from then on can be missed, and changed with the ids
// of sessions whose logs have grown, or with none for all of them. Both are called
// from here and must not block.
func (db *DB) EventsListen(ctx context.Context, ready func(), changed func(sessionIDs []string)) error {
	const doing = "listen for events"
	config := db.conn.Copy()
	config.RuntimeParams["application_name"] += " (listen)"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fault(doing, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		conn.Close(ctx) // it is given up either way
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return fault(doing, err)
	}
	ready()
	for {
		wait, cancel := context.WithTimeout(ctx, listenCheck)
		notice, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil && notice.Payload == everySession:
			changed(nil)
		case err == nil:
			changed(strings.Split(notice.Payload, ","))
		case ctx.Err() != nil || conn.IsClosed():
			return fault(doing, err)
		default:
			// Silence. A peer that vanished without a word shows when it is asked.
			ask, cancel := context.WithTimeout(ctx, rollbackTimeout)
			err := conn.Ping(ask)
			cancel()
			if err != nil {
				return fault(doing, err)
			}
		}
	}
}
