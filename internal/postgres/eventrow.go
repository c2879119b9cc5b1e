package postgres

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
)

// channel carries the ids of sessions whose logs have grown.
const channel = "overwinter_events"

// maxNotify bounds the bytes of a notification. Postgres accepts fewer than 8000.
const maxNotify = 7900

// maxNotices bounds the notifications of one commit; beyond it, a single "*" is sent.
const maxNotices = 4

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
	SessionNo      int64
	Seq            int64
	Type           string
	ConversationID string
	RunID          string // empty for no run, or if RunNo is set
	RunNo          int32  // runByID if not known
	At             time.Time
	Data           string
}

// eventRows are events to insert, by column.
type eventRows struct {
	dbsqlc.EventsInsertParams
	// others are the conversations other than the main one, each once.
	others dbsqlc.EventConversationsInsertParams
	known  map[conversationKey]bool
}

type conversationKey struct {
	sessionNo int64
	id        string
}

func (r *eventRows) add(e eventRow) {
	r.SessionNos = append(r.SessionNos, e.SessionNo)
	r.Seqs = append(r.Seqs, e.Seq)
	r.Types = append(r.Types, e.Type)
	r.ConversationIds = append(r.ConversationIds, e.ConversationID)
	r.RunIds = append(r.RunIds, e.RunID)
	r.RunNos = append(r.RunNos, e.RunNo)
	r.Ats = append(r.Ats, e.At)
	r.Datas = append(r.Datas, e.Data)
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

// notices returns the payloads that name the sessions: a few full ones, or one that names all.
func notices(sessionIDs []string) []string {
	var out []string
	var payload strings.Builder
	for _, id := range sessionIDs {
		if payload.Len() > 0 && payload.Len()+1+len(id) > maxNotify {
			out = append(out, payload.String())
			payload.Reset()
		}
		if payload.Len() > 0 {
			payload.WriteByte(',')
		}
		payload.WriteString(id)
	}
	out = append(out, payload.String())
	if len(out) > maxNotices {
		return []string{everySession}
	}
	return out
}

// everySession is the payload that names all sessions.
const everySession = "*"
