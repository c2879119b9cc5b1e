package postgres

import (
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
)

// channel is where commits name the sessions whose logs have grown.
const channel = "overwinter_events"

// maxNotify is what one notification carries at most, in bytes. Postgres takes
// fewer than 8000.
const maxNotify = 7900

// maxNotices is how many notifications one commit sends before it says "*".
const maxNotices = 4

// noFrame stands for an event that the store wrote itself.
const noFrame = -1

type eventRow struct {
	SessionID      string
	Seq            int64
	Type           string
	ConversationID string
	RunID          string
	Frame          int64
	N              int32
	At             time.Time
	Data           string
}

// eventRows are events by column, as they are inserted.
type eventRows dbsqlc.EventsInsertParams

func (r *eventRows) add(e eventRow) {
	r.SessionIds = append(r.SessionIds, e.SessionID)
	r.Seqs = append(r.Seqs, e.Seq)
	r.Types = append(r.Types, e.Type)
	r.ConversationIds = append(r.ConversationIds, e.ConversationID)
	r.RunIds = append(r.RunIds, e.RunID)
	r.Frames = append(r.Frames, e.Frame)
	r.Ns = append(r.Ns, e.N)
	r.Ats = append(r.Ats, e.At)
	r.Datas = append(r.Datas, e.Data)
}

func (r *eventRows) params() *dbsqlc.EventsInsertParams { return (*dbsqlc.EventsInsertParams)(r) }

// notices are the payloads that name the sessions: a few full ones, or one that
// says all.
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

// everySession is the payload that names all of them.
const everySession = "*"
