package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
)

const (
	// maxBlocks bounds the blocks of a page of a conversation.
	maxBlocks = 1000
	// maxBlockBytes bounds the bytes of a page of a conversation; the block that reaches it is
	// included.
	maxBlockBytes = 1 << 20
	// maxLiveBlocks bounds the open blocks of a page, whose text is partly in events.
	maxLiveBlocks = 8
	// maxDeltas and maxDeltaBytes bound the deltas that are read at a time.
	maxDeltas     = 1000
	maxDeltaBytes = 1 << 20
)

// ConversationPage returns blocks of a session in the order in which they appeared, grouped by
// conversation, and the cursor of the next page, which is empty for the last page. A page ends at
// limit blocks (maxBlocks if limit is 0) or maxBlockBytes. Seq is the position at which the first
// page was read: later blocks are in no page, and a reader that applies the events after seq to all
// pages gets the current conversation.
func (db *DB) ConversationPage(ctx context.Context, sessionID string, limit int, cursor string) (c conversation.Conversation, next string, err error) {
	if limit <= 0 || limit > maxBlocks {
		limit = maxBlocks
	}
	var from blockCursor
	if cursor != "" {
		if err := cursorDecode(cursor, &from); err != nil {
			return conversation.Conversation{}, "", err
		}
	}
	ctx, cancel := db.bulk(ctx)
	defer cancel()
	// One snapshot, in which each piece of text is either in a block or in deltas, never in both.
	err = db.inTx(ctx, "read a conversation", pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		bounds, err := db.q.EventsBounds(ctx, tx, sessionID)
		if isNoRows(err) {
			return noSession(sessionID)
		} else if err != nil {
			return err
		}
		at := from.Seq
		if cursor == "" {
			at = bounds.LastSeq
		}
		rows, err := db.q.BlockPage(ctx, tx, &dbsqlc.BlockPageParams{
			SessionID: sessionID, AfterPosition: from.Position, ThroughPosition: at, MaxItems: int32(limit) + 1, MaxBytes: maxBlockBytes,
		})
		if err != nil {
			return err
		}
		page := make([]dbsqlc.Block, 0, len(rows))
		live, bytes := 0, 0
		for i, row := range rows {
			if row.Live {
				live++
			}
			if bytes += len(row.Block); i == limit || live > maxLiveBlocks || i > 0 && bytes > maxBlockBytes {
				break
			}
			page = append(page, row)
		}
		if err := addText(page, at, func(after, through int64) ([]dbsqlc.EventsDeltasRow, error) {
			return db.deltas(ctx, tx, sessionID, after, through)
		}); err != nil {
			return err
		}
		// Text in events counts too.
		bytes = 0
		for i, row := range page {
			if bytes += len(row.Block); i > 0 && bytes > maxBlockBytes {
				page = page[:i]
				break
			}
		}
		if len(page) > 0 {
			last := page[len(page)-1].Position
			more, err := db.q.BlocksBetween(ctx, tx, &dbsqlc.BlocksBetweenParams{SessionID: sessionID, AfterPosition: last, ThroughPosition: at})
			if err != nil {
				return err
			}
			if more {
				next = cursorEncode(blockCursor{Position: last, Seq: at})
			}
		}
		c, err = threads(page)
		c.Seq = at
		return err
	})
	return c, next, err
}

// ConversationTail returns the cursor of a page that begins with the newest blocks, at most limit
// of them and about the given number of bytes, and how many blocks precede them. The cursor is
// empty if the page has all blocks.
func (db *DB) ConversationTail(ctx context.Context, sessionID string, bytes int64, limit int) (cursor string, leftOut int64, err error) {
	ctx, cancel := db.bulk(ctx)
	defer cancel()
	const doing = "find the end of a conversation"
	bounds, err := db.q.EventsBounds(ctx, db.pool, sessionID)
	if isNoRows(err) {
		return "", 0, noSession(sessionID)
	} else if err != nil {
		return "", 0, fault(doing, err)
	}
	row, err := db.q.BlockTail(ctx, db.pool, &dbsqlc.BlockTailParams{
		SessionID: sessionID, ThroughPosition: bounds.LastSeq, ReadItems: int32(limit) + 1, MaxItems: int64(limit), MaxBytes: bytes,
	})
	if err != nil || row.Position == 0 {
		return "", 0, fault(doing, err)
	}
	return cursorEncode(blockCursor{Position: row.Position, Seq: bounds.LastSeq}), row.LeftOut, nil
}

func (db *DB) deltas(ctx context.Context, tx dbsqlc.DBTX, sessionID string, after, through int64) ([]dbsqlc.EventsDeltasRow, error) {
	return db.q.EventsDeltas(ctx, tx, &dbsqlc.EventsDeltasParams{
		SessionID: sessionID, AfterSeq: after, ThroughSeq: through, MaxItems: maxDeltas, MaxBytes: maxDeltaBytes,
	})
}

// addText reads the deltas that follow the text of the live blocks in rows, up to a position, and
// appends them. deltas returns some of those between two positions; none at the end.
func addText(rows []dbsqlc.Block, through int64, deltas func(after, through int64) ([]dbsqlc.EventsDeltasRow, error)) error {
	type key struct{ conversationID, blockID string }
	live := map[key]*dbsqlc.Block{}
	texts := map[key]*strings.Builder{}
	after := int64(-1)
	for i := range rows {
		if row := &rows[i]; row.Live {
			k := key{row.ConversationID, row.BlockID}
			live[k], texts[k] = row, &strings.Builder{}
			if after < 0 || row.TextSeq < after {
				after = row.TextSeq
			}
		}
	}
	for len(live) > 0 {
		found, err := deltas(after, through)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			break
		}
		after = found[len(found)-1].Seq
		for _, e := range found {
			var d conversation.TextDelta
			if json.Unmarshal(e.Data, &d) != nil {
				continue // the log accepts such events; it concerns no block
			}
			if e.ConversationID == "" {
				e.ConversationID = conversation.Main
			}
			k := key{e.ConversationID, text(d.BlockID)}
			if row := live[k]; row != nil && e.Seq > row.TextSeq {
				texts[k].WriteString(d.Delta)
				row.TextSeq = e.Seq
			}
		}
	}
	for k, more := range texts {
		if more.Len() == 0 {
			continue
		}
		var block conversation.Block
		if err := json.Unmarshal(live[k].Block, &block); err != nil {
			return fmt.Errorf("stored block %s: %w", k.blockID, err)
		}
		block.Content += more.String()
		if err := putBlock(live[k], block); err != nil {
			return err
		}
	}
	return nil
}

// threads orders blocks that are sorted by position: the main conversation first,
// then the others in the order in which they appeared.
func threads(rows []dbsqlc.Block) (conversation.Conversation, error) {
	type thread struct {
		conversation.Thread
		first int64
	}
	main := &thread{Thread: conversation.Thread{ID: conversation.Main, Blocks: []conversation.Block{}}}
	byID := map[string]*thread{conversation.Main: main}
	var others []*thread
	for _, row := range rows {
		t := byID[row.ConversationID]
		if t == nil {
			t = &thread{Thread: conversation.Thread{ID: row.ConversationID, Blocks: []conversation.Block{}}, first: row.FirstSeq}
			byID[row.ConversationID] = t
			others = append(others, t)
		}
		t.first = min(t.first, row.FirstSeq)
		if row.Removed {
			continue
		}
		var block conversation.Block
		if err := json.Unmarshal(row.Block, &block); err != nil {
			return conversation.Conversation{}, fmt.Errorf("stored block %s: %w", row.BlockID, err)
		}
		t.Blocks = append(t.Blocks, block)
	}
	slices.SortFunc(others, func(a, b *thread) int { return int(a.first - b.first) })
	c := conversation.Conversation{Threads: []conversation.Thread{main.Thread}}
	for _, t := range others {
		c.Threads = append(c.Threads, t.Thread)
	}
	return c, nil
}

// settleBlocks stores the complete text of the blocks that are still open when a run ends, so that
// later readers need not collect it from the events.
func (s *sessionTx) settleBlocks(ctx context.Context, rows []dbsqlc.Block) error {
	if len(rows) == 0 {
		return nil
	}
	if err := addText(rows, math.MaxInt64, func(after, through int64) ([]dbsqlc.EventsDeltasRow, error) {
		return s.q.EventsDeltas(ctx, s, &dbsqlc.EventsDeltasParams{
			SessionID: s.row.ID, AfterSeq: after, ThroughSeq: through, MaxItems: maxDeltas, MaxBytes: maxDeltaBytes,
		})
	}); err != nil {
		return err
	}
	var put blockPut
	for i := range rows {
		rows[i].Live = false
		put.mark(&rows[i])
	}
	return put.flush(ctx, s.q, s)
}
