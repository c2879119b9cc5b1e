package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
)

const (
	// compactEvents and compactBytes bound the events that one transaction reads.
	compactEvents = 1000
	compactBytes  = 1 << 20
)

// EventsCompact deletes text deltas that are older than age if a later event contains the complete
// text of their block: without them the log folds to the same conversation. One call reads up to
// limit sessions after a number, and about budget events. It returns the number to continue with, 0
// after the last session. An interrupted call loses only the work of its current transaction. A
// session that is locked or fails does not keep others from being compacted.
func (db *DB) EventsCompact(ctx context.Context, age time.Duration, after int64, limit, budget int) (next, dropped int64, err error) {
	const doing = "compact events"
	ctx, cancel := db.bulk(ctx)
	defer cancel()
	rows, err := db.q.SessionsToCompact(ctx, db.pool, &dbsqlc.SessionsToCompactParams{AgeSeconds: age.Seconds(), AfterNo: after, MaxItems: int32(limit)})
	if err != nil {
		return after, 0, fault(doing, err)
	}
	var failed error
	for _, row := range rows {
		if row.Due {
			looked, n, err := db.compact(ctx, row, age, budget)
			dropped += n
			if ctx.Err() != nil {
				return after, dropped, errors.Join(failed, fault(doing, err))
			}
			if err != nil && failure.CodeOf(err) != failure.NoSession {
				failed = errors.Join(failed, fmt.Errorf("%s: session %s: %w", doing, row.ID, err))
			}
			if budget -= looked; budget <= 0 {
				return after, dropped, failed // continue with this session
			}
		}
		after = row.No
	}
	if len(rows) < limit {
		after = 0
	}
	return after, dropped, failed
}

// compact deletes deltas of one session, and returns how many events it has read.
func (db *DB) compact(ctx context.Context, s dbsqlc.SessionsToCompactRow, age time.Duration, budget int) (looked int, dropped int64, err error) {
	after := s.AfterSeq
	for looked < budget {
		rows, err := db.q.EventsToCompact(ctx, db.pool, &dbsqlc.EventsToCompactParams{
			AgeSeconds: age.Seconds(), SessionNo: s.No, AfterSeq: after, MaxItems: compactEvents, MaxBytes: compactBytes,
		})
		if err != nil {
			return looked, dropped, fault("read old events", err)
		}
		read := len(rows)
		if young := slices.IndexFunc(rows, func(r dbsqlc.EventsToCompactRow) bool { return !r.Old }); young >= 0 {
			rows = rows[:young]
		}
		if len(rows) == 0 {
			return looked, dropped, nil
		}
		looked += len(rows)
		seqs, err := db.droppable(ctx, s, rows)
		if err != nil {
			return looked, dropped, fault("find complete blocks", err)
		}
		drop := dbsqlc.EventsDropParams{SessionNo: s.No, Looked: rows[len(rows)-1].Seq, Seqs: seqs}
		if len(seqs) > 0 {
			drop.Dropped = seqs[len(seqs)-1]
		}
		done, err := db.q.EventsDrop(ctx, db.pool, &drop)
		if err != nil {
			return looked, dropped, fault("drop events", err)
		}
		if dropped += done.Events; done.Sessions == 0 || len(rows) < read {
			return looked, dropped, nil // locked, or the next events are too young: a later call continues
		}
		after = drop.Looked
	}
	return looked, dropped, nil
}

// droppable returns the positions of the redundant deltas: those with a later block_complete that
// replaces the text of their block.
func (db *DB) droppable(ctx context.Context, s dbsqlc.SessionsToCompactRow, rows []dbsqlc.EventsToCompactRow) ([]int64, error) {
	deltas := map[blockKey][]int64{}
	whole := dbsqlc.BlocksWholeParams{SessionID: s.ID, SessionNo: s.No}
	for _, row := range rows {
		var d conversation.TextDelta
		if !row.IsDelta || json.Unmarshal([]byte(row.Delta), &d) != nil {
			continue
		}
		key := blockKey{s.ID, row.ConversationID, text(d.BlockID)}
		if deltas[key] == nil {
			whole.ConversationIds, whole.BlockIds = append(whole.ConversationIds, key.conversationID), append(whole.BlockIds, key.blockID)
		}
		deltas[key] = append(deltas[key], row.Seq)
	}
	if len(deltas) == 0 {
		return nil, nil
	}
	blocks, err := db.q.BlocksWhole(ctx, db.pool, &whole)
	if err != nil {
		return nil, err
	}
	var seqs []int64
	for _, b := range blocks {
		for _, seq := range deltas[blockKey{s.ID, b.ConversationID, b.BlockID}] {
			if seq < b.TextSeq {
				seqs = append(seqs, seq)
			}
		}
	}
	slices.Sort(seqs)
	return seqs, nil
}

// EventsDropped returns the newest position of a session that compaction has deleted; 0 if there is
// none.
func (db *DB) EventsDropped(ctx context.Context, sessionID string) (int64, error) {
	seq, err := db.q.EventsDropped(ctx, db.pool, sessionID)
	if isNoRows(err) {
		return 0, noSession(sessionID)
	}
	return seq, fault("read how far the log was compacted", err)
}
