package postgres

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
)

// eventsExtend commits the appends of a batch in one round trip if each consists of a single delta,
// as most do while many sessions are active, and returns the sessions whose appends it has
// committed. Other appends need data that only the longer transaction reads. A batch with any other
// append is left to that transaction as a whole, since a second transaction would cost more than it
// saves.
func (db *DB) eventsExtend(ctx context.Context, appends []eventlog.Append) (map[string]struct{}, error) {
	extend := db.extension(appends)
	if extend == nil {
		return nil, nil
	}
	var rows []dbsqlc.EventsExtendRow
	err := db.inOneTrip(ctx, func(in *lookups) (err error) {
		rows, err = db.q.EventsExtend(ctx, in, extend)
		return err
	})
	if err != nil {
		db.readers.notify(inTurn, extend.SessionIds...) //nolint:contextcheck // the notifier outlives the call
		return nil, fault("append deltas", err)
	}
	places := make(map[string]int, len(appends))
	for i, a := range appends {
		places[a.SessionID] = i
	}
	extended := make(map[string]struct{}, len(rows))
	events := make([]eventlog.Event, 0, len(rows))
	for _, row := range rows {
		extended[row.SessionID] = struct{}{}
		place := places[row.SessionID]
		a := &appends[place]
		d := &a.Events[0]
		e := eventRow{
			SessionID: a.SessionID, Seq: row.Seq, Type: d.Type, ConversationID: d.ConversationID, RunID: a.RunID, RunExists: true,
			At: d.At, Data: extend.Datas[place],
		}
		events = append(events, e.event())
	}
	db.readers.publish(inTurn, events) //nolint:contextcheck // as above
	return extended, nil
}

// extension returns the parameters for a batch in which every append is one delta of the main conversation and no two are of one session,
// else nil.
func (db *DB) extension(appends []eventlog.Append) *dbsqlc.EventsExtendParams {
	p := &dbsqlc.EventsExtendParams{}
	seen := make(map[string]struct{}, len(appends))
	for _, a := range appends {
		if len(a.Events) != 1 || len(a.Questions)+len(a.Resolved) > 0 || a.RunID == "" || a.Token == "" {
			return nil
		}
		d := a.Events[0]
		block, plain := plainDelta(d)
		var conversationNo int32
		switch d.ConversationID {
		case "":
		case conversation.Main:
			conversationNo = 1
		default:
			return nil
		}
		if !plain || d.At.IsZero() || checkFrames(a) != nil {
			return nil
		}
		if _, twice := seen[a.SessionID]; twice {
			return nil
		}
		seen[a.SessionID] = struct{}{}
		p.SessionIds, p.RunIds = append(p.SessionIds, a.SessionID), append(p.RunIds, a.RunID)
		p.Generations, p.Tokens = append(p.Generations, a.Generation), append(p.Tokens, a.Token)
		p.FirstFrames, p.LastFrames = append(p.FirstFrames, d.Frame), append(p.LastFrames, a.LastFrame)
		p.Translators, p.Steers = append(p.Translators, db.sealState(a.SessionID, a.RunID, a.State)), append(p.Steers, a.Steers)
		p.ConversationNos, p.BlockIds = append(p.ConversationNos, conversationNo), append(p.BlockIds, text(block))
		p.Ats, p.Datas = append(p.Ats, d.At.UTC()), append(p.Datas, string(d.Data))
	}
	return p
}
