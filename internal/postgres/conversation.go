package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
)

// Conversation returns everything that was said in a session so far. It reads
// the stored blocks and, of those that are still being written, the text since.
func (db *DB) Conversation(ctx context.Context, sessionID string) (c conversation.Conversation, err error) {
	ctx, cancel := db.bulk(ctx)
	defer cancel()
	// One snapshot: what is not in the blocks is in the deltas, and nothing in both.
	err = db.inTx(ctx, "read a conversation", pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		bounds, err := db.q.EventsBounds(ctx, tx, sessionID)
		if isNoRows(err) {
			return noSession(sessionID)
		} else if err != nil {
			return err
		}
		rows, err := db.q.BlockList(ctx, tx, sessionID)
		if err != nil {
			return err
		}
		if err := addText(rows, func(after int64) ([]dbsqlc.EventsDeltasRow, error) {
			return db.q.EventsDeltas(ctx, tx, &dbsqlc.EventsDeltasParams{SessionID: sessionID, AfterSeq: after})
		}); err != nil {
			return err
		}
		c, err = threads(rows)
		c.Seq = bounds.LastSeq
		return err
	})
	return c, err
}

// addText reads the deltas behind the live blocks of rows and adds them.
func addText(rows []dbsqlc.Block, deltas func(after int64) ([]dbsqlc.EventsDeltasRow, error)) error {
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
	if len(live) == 0 {
		return nil
	}
	found, err := deltas(after)
	if err != nil {
		return err
	}
	for _, e := range found {
		var d conversation.TextDelta
		if json.Unmarshal(e.Data, &d) != nil {
			continue // it was let into the log as it came and is about no block
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

// settleBlocks stores the text of the blocks that are still open when a run
// ends, so that nobody has to look for it in the events ever after.
func (s *sessionTx) settleBlocks(ctx context.Context) error {
	rows, err := s.q.BlocksLive(ctx, s, s.row.ID)
	if err != nil || len(rows) == 0 {
		return err
	}
	if err := addText(rows, func(after int64) ([]dbsqlc.EventsDeltasRow, error) {
		return s.q.EventsDeltas(ctx, s, &dbsqlc.EventsDeltasParams{SessionID: s.row.ID, AfterSeq: after})
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
