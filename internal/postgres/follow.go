package postgres

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// eventsRead reads the next events of several sessions. It is not generated, so that the data of a
// row is written to a page without an intermediate copy. A page ends with the event with which its
// data reaches its bound in bytes.
//
// An event costs little more than its index lookup, so that a reader catches up at the speed of the
// network. The numbers of its run and conversation stand for ids that are in separate rows
// before the events: a join per event would double the time. The events of most pages are one row,
// see packedEvents, preceded by rows with the data of large events: a row per event takes 50 % longer. Other pages,
// such as those with mostly large events, have a row per event. Aggregates get the rows of a sorted
// subquery in its order. A running sum of sizes would cost even more, so it is computed only for a page that ends
// because of its bytes. Postgres executes the parts of a UNION ALL in order, and not in parallel if they read a CTE.
const eventsRead = `
WITH w AS MATERIALIZED (
    SELECT w.page, w.after, w.through, w.bytes, s.no, s.id, s.first_seq, s.last_seq, a.events, a.size, a.large,
        a.first_event, a.last_event, a.first_run, a.last_run, a.last_conversation, p.packed,
        CASE WHEN p.packed THEN a.numbers || a.times END AS fixed,
        CASE WHEN p.packed THEN a.types END AS types,
        CASE WHEN p.packed THEN coalesce(a.data, '') END AS data
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::integer[], $5::bigint[]) WITH ORDINALITY
        AS w (session_id, after, through, items, bytes, page)
    CROSS JOIN LATERAL (SELECT o.no, o.id, o.first_seq, o.last_seq FROM sessions o WHERE o.id = w.session_id LIMIT 1) s
    CROSS JOIN LATERAL (
        SELECT count(*), coalesce(sum(e.size), 0), min(e.seq), max(e.seq),
            min(e.run_no) FILTER (WHERE e.run_no > 0), max(e.run_no), max(e.conversation_no),
            count(*) FILTER (WHERE e.size >= 511), bool_or(octet_length(e.type) >= 64 OR e.conversation_no >= 131072),
            string_agg(int8send((e.run_no::bigint << 32) | (e.conversation_no::bigint << 15) | (octet_length(e.type)::bigint << 9) | least(e.size, 511)), ''),
            string_agg(timestamptz_send(e.at), ''),
            string_agg(CASE WHEN octet_length(e.type) < 64 THEN e.type END, ''),
            string_agg(CASE WHEN e.size < 511 THEN e.data END, '')
        FROM (
            SELECT e.seq, e.type, e.conversation_no, e.run_no, e.at, e.data, octet_length(e.data) AS size FROM event_log e
            WHERE e.session_no = s.no AND e.seq > w.after AND e.seq <= w.through
            ORDER BY e.seq LIMIT w.items
        ) e
    ) a (events, size, first_event, last_event, first_run, last_run, last_conversation, large, unpackable, numbers, times, types, data)
    CROSS JOIN LATERAL (
        SELECT a.events > 0 AND a.size < w.bytes AND a.last_event - a.first_event = a.events - 1 AND NOT a.unpackable
            AND 8 * a.large <= a.events AND pg_client_encoding() = getdatabaseencoding()
    ) p (packed)
)
SELECT w.page, w.last_seq AS newest, w.first_seq AS seq, 0 AS run_no, 0 AS conversation_no, 'epoch'::timestamptz AS at, '' AS name, NULL::text AS data,
    NULL::bytea AS fixed
FROM w
UNION ALL
SELECT w.page, -1, 0, r.no, 0, 'epoch', r.id, NULL, NULL
FROM w CROSS JOIN LATERAL (SELECT k.no, k.id FROM runs k WHERE k.session_id = w.id AND k.no BETWEEN w.first_run AND w.last_run) r
WHERE w.last_run > 0
UNION ALL
SELECT w.page, -1, 0, 0, c.no, 'epoch', c.id, NULL, NULL
FROM w CROSS JOIN LATERAL (SELECT k.no, k.id FROM event_conversations k WHERE k.session_no = w.no AND k.no BETWEEN 2 AND w.last_conversation) c
WHERE w.last_conversation > 1
UNION ALL
SELECT w.page, -1, l.seq, 0, -1, 'epoch', '', l.data, NULL
FROM w CROSS JOIN LATERAL (
    SELECT e.seq, e.data FROM event_log e
    WHERE e.session_no = w.no AND e.seq > w.after AND e.seq <= w.last_event AND octet_length(e.data) >= 511
    ORDER BY e.seq
) l
WHERE w.packed AND w.large > 0
UNION ALL
SELECT w.page, -1, w.first_event, 0, 0, 'epoch', w.types, w.data, w.fixed FROM w WHERE w.packed
UNION ALL
SELECT w.page, -1, p.seq, p.run_no, p.conversation_no, p.at, p.type, p.data, NULL
FROM w CROSS JOIN LATERAL (
    SELECT e.seq, e.type, e.conversation_no, e.run_no, e.at, e.data FROM event_log e
    WHERE e.session_no = w.no AND e.seq > w.after AND e.seq <= w.through
    ORDER BY e.seq LIMIT CASE WHEN w.size < w.bytes THEN w.events ELSE (
        SELECT count(*) FROM (
            SELECT sum(octet_length(e.data)) OVER (ORDER BY e.seq ROWS UNBOUNDED PRECEDING) - octet_length(e.data) AS before FROM event_log e
            WHERE e.session_no = w.no AND e.seq > w.after AND e.seq <= w.through
            ORDER BY e.seq LIMIT w.events
        ) b WHERE b.before < w.bytes
    ) END
) p
WHERE NOT w.packed`

// EventsRead fills pages of different sessions with one statement, in order and without gaps,
// within the bounds of each page. The page of a session that does not exist fails with
// session_not_found.
func (db *DB) EventsRead(ctx context.Context, pages []*eventlog.Page) error {
	const doing = "read events"
	var (
		ids            = make([]string, len(pages))
		after, through = make([]int64, len(pages)), make([]int64, len(pages))
		items, bytes   = make([]int32, len(pages)), make([]int64, len(pages))
	)
	for i, p := range pages {
		ids[i], after[i], through[i], items[i], bytes[i] = p.SessionID, p.After, p.Through, int32(p.Limit), int64(p.Bytes)
	}
	var batch pgx.Batch
	// A batch is implicitly one transaction: begin and commit would double the statements of every
	// read.
	batch.Queue(genericPlans)
	batch.Queue(eventsRead, ids, after, through, items, bytes).Query(func(rows pgx.Rows) error { return fillPages(rows, pages) })
	return fault(doing, db.pool.SendBatch(ctx, &batch).Close())
}

// pageNames are the ids of the runs and conversations of a page's events.
type pageNames struct {
	found               bool         // the session exists
	used                bool         // an event was read: it is too late for further names
	large               []largeEvent // in order, before the packed events
	runs, conversations numberedIDs
}

// numberedIDs are ids by their number. The zero value has none.
type numberedIDs struct {
	byNo   map[int32]string
	lastNo int32 // the previous lookup, which the next one mostly repeats
	lastID string
}

func (n *numberedIDs) add(no int32, id string) {
	if n.byNo == nil {
		n.byNo = map[int32]string{}
	}
	n.byNo[no] = id
}

// id returns the id of a number; "" for 0, or if the row of the id is deleted.
func (n *numberedIDs) id(no int32) string {
	if no != n.lastNo {
		n.lastNo, n.lastID = no, n.byNo[no]
	}
	return n.lastID
}

// mainConversation is the number of the main conversation in every session.
const mainConversation = 1

// errRowOrder: Postgres executes the parts of a UNION ALL in the order given, without promising it.
var errRowOrder = &failure.Error{Code: failure.Internal, Message: "the rows of a page are not in the order of the statement"}

// fillPages fills pages with the rows of eventsRead. It refuses a row of a page's bounds or names
// after one of its events.
func fillPages(rows pgx.Rows, pages []*eventlog.Page) error {
	var (
		number, newest, seq   int64
		runNo, conversationNo int32
		at                    time.Time
		name, data, fixed     pgtype.DriverBytes
		e                     eventlog.Event
		names                 = make([]pageNames, len(pages))
	)
	row := []any{&number, &newest, &seq, &runNo, &conversationNo, &at, &name, &data, &fixed}
	for rows.Next() {
		if err := rows.Scan(row...); err != nil {
			return err
		}
		page, of := pages[number-1], &names[number-1]
		switch {
		case data == nil && of.used:
			return errRowOrder
		case fixed != nil:
			of.used = true
			if err := (packedEvents{first: seq, fixed: fixed, types: name, data: data, large: of.large}).addTo(page, of); err != nil {
				return err
			}
		case conversationNo < 0:
			of.large = append(of.large, largeEvent{seq, slices.Clone(data)})
		case data != nil:
			of.used = true
			e.Seq, e.SessionID, e.At, e.Data = seq, page.SessionID, at.UTC(), json.RawMessage(data)
			e.Type, e.ConversationID, e.RunID = reuse(e.Type, name), of.conversations.id(conversationNo), of.runs.id(runNo)
			page.Add(&e)
		case runNo > 0:
			of.runs.add(runNo, session.RunOf(string(name)))
		case conversationNo > 0:
			of.conversations.add(conversationNo, string(name))
		default:
			page.Bounds(seq, newest)
			of.found = true
			of.conversations.add(mainConversation, conversation.Main)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for i, p := range pages {
		if !names[i].found {
			p.Fail(noSession(p.SessionID))
		}
	}
	return nil
}

// EventsPage returns at most limit events after a position, in order and without gaps. It returns
// *eventlog.PositionGoneError or *eventlog.FuturePositionError if the position cannot be read from,
// and session_not_found if there is no log.
func (db *DB) EventsPage(ctx context.Context, sessionID string, after int64, limit int) ([]eventlog.Event, error) {
	var events []eventlog.Event
	var bounds eventlog.Bounds
	page := eventlog.NewPage(&eventlog.Format{Mark: func(e *eventlog.Event) bool {
		event := *e
		event.Data = slices.Clone(e.Data)
		events = append(events, event)
		return false
	}}, sessionID, after)
	page.Limit = limit
	err := db.EventsRead(ctx, []*eventlog.Page{page})
	if err == nil {
		bounds, err = page.Found()
	}
	if err == nil && (len(events) == 0 || events[0].Seq != after+1) {
		err = bounds.Check(after)
	}
	if err != nil {
		return nil, err
	}
	return events, nil
}

// reuse returns b as a string, without a copy if it equals the string of the previous row.
func reuse(before string, b []byte) string {
	if before == string(b) {
		return before
	}
	return string(b)
}

// EventsBounds returns the positions of the oldest and the newest event of a session.
func (db *DB) EventsBounds(ctx context.Context, sessionID string) (eventlog.Bounds, error) {
	bounds, err := db.q.EventsBounds(ctx, db.pool, sessionID)
	if isNoRows(err) {
		return eventlog.Bounds{}, noSession(sessionID)
	}
	if err != nil {
		return eventlog.Bounds{}, fault("read positions", err)
	}
	return eventlog.Bounds{First: bounds.FirstSeq, Newest: bounds.LastSeq}, nil
}

// EventsPosition returns the newest seq of a session; 0 before the first event.
func (db *DB) EventsPosition(ctx context.Context, sessionID string) (int64, error) {
	bounds, err := db.q.EventsBounds(ctx, db.pool, sessionID)
	if isNoRows(err) {
		return 0, noSession(sessionID)
	}
	return bounds.LastSeq, fault("read a position", err)
}

// EventsPositions returns the positions of the oldest and the newest event of each of the sessions
// that exist.
func (db *DB) EventsPositions(ctx context.Context, sessionIDs []string) (map[string]eventlog.Bounds, error) {
	rows, err := db.q.EventsPositions(ctx, db.pool, sessionIDs)
	if err != nil {
		return nil, fault("read positions", err)
	}
	out := make(map[string]eventlog.Bounds, len(rows))
	for _, row := range rows {
		out[row.ID] = eventlog.Bounds{First: row.FirstSeq, Newest: row.LastSeq}
	}
	return out, nil
}

// EventsPrune deletes a session's events through a position. Readers before it then get a
// *eventlog.PositionGoneError. The newest event always stays. EventsPrune first records the new
// beginning of the log, and then deletes the rows in batches, so that writers do not wait for it.
// The next call with the same or a later position completes an interrupted one.
func (db *DB) EventsPrune(ctx context.Context, sessionID string, through int64) error {
	const doing = "prune events"
	ctx, cancel := db.bulk(ctx)
	defer cancel()
	var no int64
	err := db.inSession(ctx, doing, sessionID, func(s *sessionTx) error {
		no = s.row.No
		through = min(through, s.row.LastSeq-1)
		if through < 1 {
			return nil
		}
		// The text of open blocks is in events until it is stored in their rows.
		live, err := s.q.BlocksLive(ctx, s, &dbsqlc.BlocksLiveParams{SessionID: s.row.ID})
		if err != nil {
			return err
		}
		if err := s.settleBlocks(ctx, live); err != nil {
			return err
		}
		return s.q.EventsSetFirst(ctx, s, &dbsqlc.EventsSetFirstParams{ID: sessionID, FirstSeq: through + 1})
	})
	if err != nil || through < 1 {
		return err
	}
	return fault(doing, db.eventsDelete(ctx, no, through))
}

// listenCheck is how long a listening connection may be silent before it is pinged.
const listenCheck = 15 * time.Second

// EventsListen reports commits as they happen, until ctx ends or its dedicated connection is lost;
// it always returns an error. It calls ready once when no later commit can be missed, and changed
// with the sessions whose logs have grown, or with none if all may have. Both callbacks run on this
// goroutine and must not block.
func (db *DB) EventsListen(ctx context.Context, ready func(), changed func(grown []eventlog.Growth)) error {
	return db.listen(ctx, ready, changed, eventsChannel, turnsChannel)
}

// Outside is a database whose listeners are not notified of the events of turns, but only of those from
// outside: of clients, of workflows, and of the system. Waits that turns do not end need no others.
type Outside struct{ *DB }

// EventsListen is [DB.EventsListen] without the events of turns.
func (o Outside) EventsListen(ctx context.Context, ready func(), changed func(grown []eventlog.Growth)) error {
	return o.listen(ctx, ready, changed, eventsChannel)
}

func (db *DB) listen(ctx context.Context, ready func(), changed func(grown []eventlog.Growth), channels ...string) error {
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
		conn.Close(ctx) // it is discarded in any case
	}()
	if err := db.listenTo(ctx, conn, channels); err != nil {
		return fault(doing, err)
	}
	ready()
	for {
		wait, cancel := context.WithTimeout(ctx, listenCheck)
		notice, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			grown, err := growths(notice.Payload)
			if err != nil {
				db.options.Logger.WarnContext(ctx, "could not decode new events; they are read instead", slog.Any("error", err))
			}
			changed(grown)
		case ctx.Err() != nil || conn.IsClosed():
			return fault(doing, err)
		default:
			// No notification: a ping detects a peer that vanished without closing the connection.
			ask, cancel := context.WithTimeout(ctx, rollbackTimeout)
			err := conn.Ping(ask)
			cancel()
			if err != nil {
				return fault(doing, err)
			}
		}
	}
}

// listenTo makes a connection receive the notifications of channels, within the deadline of a call.
func (db *DB) listenTo(ctx context.Context, conn *pgx.Conn, channels []string) error {
	ctx, cancel := within(ctx, db.options.CallTimeout)
	defer cancel()
	for _, channel := range channels {
		if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
			return err
		}
	}
	return nil
}
