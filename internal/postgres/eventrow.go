package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// runByID makes EventsInsert find the number of a run by its id.
const runByID = -1

// runNo returns the number to insert for a run that is given by its id, if any.
func runNo(runID string) int32 {
	if runID == "" {
		return 0
	}
	return runByID
}

type eventRow struct {
	SessionID      string
	SessionNo      int64
	Seq            int64
	Type           string
	ConversationID string
	RunID          string // empty for no run
	RunNo          int32  // runByID if not known
	RunExists      bool   // the run of RunID exists, so that readers get its id
	At             time.Time
	Data           string
}

// event returns the event as readers get it after the commit. It has no data if they must read it,
// because it is not known whether its run exists.
func (e *eventRow) event() eventlog.Event {
	if e.RunID != "" && !e.RunExists {
		return eventlog.Event{SessionID: e.SessionID, Seq: e.Seq}
	}
	return eventlog.Event{
		Seq: e.Seq, Type: e.Type, SessionID: e.SessionID, ConversationID: e.ConversationID, RunID: session.RunOf(e.RunID),
		At: e.At.UTC(), Data: json.RawMessage(e.Data),
	}
}

// eventRows are events to insert, by column.
type eventRows struct {
	dbsqlc.EventsInsertParams
	// events are the same events for readers. Those for which no notification has room have no data.
	events []eventlog.Event
	size   int // bytes of the data of events
	// others are the conversations other than the main one, each once.
	others dbsqlc.EventConversationsInsertParams
	known  map[conversationKey]bool
}

type conversationKey struct {
	sessionNo int64
	id        string
}

func (r *eventRows) add(e *eventRow) {
	r.SessionNos = append(r.SessionNos, e.SessionNo)
	r.Seqs = append(r.Seqs, e.Seq)
	r.Types = append(r.Types, e.Type)
	r.ConversationIds = append(r.ConversationIds, e.ConversationID)
	runID := "" // the number suffices
	if e.RunNo == runByID {
		runID = e.RunID
	}
	r.RunIds = append(r.RunIds, runID)
	r.RunNos = append(r.RunNos, e.RunNo)
	r.Ats = append(r.Ats, e.At)
	r.Datas = append(r.Datas, e.Data)
	event := eventlog.Event{SessionID: e.SessionID, Seq: e.Seq}
	if r.size += len(e.Data); r.size <= maxNotify {
		event = e.event()
	}
	r.events = append(r.events, event)
	key := conversationKey{e.SessionNo, e.ConversationID}
	if e.ConversationID == "" || e.ConversationID == conversation.Main || r.known[key] {
		return
	}
	if r.known == nil {
		r.known = map[conversationKey]bool{}
	}
	r.known[key] = true
	r.others.SessionNos = append(r.others.SessionNos, key.sessionNo)
	r.others.Ids = append(r.others.Ids, key.id)
}

// insert queues the statements that write the events. They need the locks of their sessions.
func (r *eventRows) insert(ctx context.Context, q *dbsqlc.Queries, out dbsqlc.DBTX) error {
	return cmp.Or(r.insertConversations(ctx, q, out), q.EventsInsert(ctx, out, &r.EventsInsertParams))
}

// insertConversations queues the statement that assigns numbers to new conversations. It comes before
// that which writes their events.
func (r *eventRows) insertConversations(ctx context.Context, q *dbsqlc.Queries, out dbsqlc.DBTX) error {
	if len(r.others.Ids) == 0 {
		return nil
	}
	return q.EventConversationsInsert(ctx, out, &r.others)
}
