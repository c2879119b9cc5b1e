package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
)

// blockFold keeps the table of blocks in step with events that are written in the
// same transaction. Text deltas are not folded here, since that would write a
// long text anew with each: they stay events until their block is closed by the
// agent, or settled with its run.
type blockFold struct {
	events []foldEvent
}

type foldEvent struct {
	sessionID, conversationID string
	seq                       int64
	kind                      conversation.EventType
	data                      json.RawMessage
}

type blockKey struct {
	sessionID, conversationID, blockID string
}

// foldData is what of an event's data the fold looks at, whatever its type.
type foldData struct {
	Block   *conversation.Block `json:"block"`
	BlockID string              `json:"blockId"`
}

func newBlockFold() *blockFold { return &blockFold{} }

func (f *blockFold) add(e foldEvent) {
	switch e.kind {
	case conversation.EventBlockStart, conversation.EventBlockComplete, conversation.EventBlockUpdate,
		conversation.EventBlockRemoved, conversation.EventTextDelta:
		if e.conversationID == "" {
			e.conversationID = conversation.Main
		}
		f.events = append(f.events, e)
	}
}

// flush reads the blocks that the events are about from tx and writes those that
// changed to out.
func (f *blockFold) flush(ctx context.Context, q *dbsqlc.Queries, tx, out dbsqlc.DBTX) error {
	if len(f.events) == 0 {
		return nil
	}
	data := make([]foldData, len(f.events))
	keys := make([]blockKey, len(f.events))
	var get dbsqlc.BlocksGetParams
	asked := map[blockKey]bool{}
	for i, e := range f.events {
		// Data that is not what its type says concerns no block, like data about
		// a block that is not there. The event is in the log all the same.
		if json.Unmarshal(e.data, &data[i]) != nil {
			continue
		}
		id := data[i].BlockID
		if data[i].Block != nil {
			id = data[i].Block.ID
		}
		keys[i] = blockKey{e.sessionID, e.conversationID, text(id)}
		if !asked[keys[i]] {
			asked[keys[i]] = true
			get.SessionIds = append(get.SessionIds, keys[i].sessionID)
			get.ConversationIds = append(get.ConversationIds, keys[i].conversationID)
			get.BlockIds = append(get.BlockIds, keys[i].blockID)
		}
	}
	rows, err := q.BlocksGet(ctx, tx, &get)
	if err != nil {
		return err
	}
	blocks := make(map[blockKey]*dbsqlc.Block, len(rows))
	for _, row := range rows {
		blocks[blockKey{row.SessionID, row.ConversationID, row.BlockID}] = &row
	}
	var put blockPut
	for i, e := range f.events {
		if keys[i] == (blockKey{}) {
			continue
		}
		if changed, err := foldOne(blocks, keys[i], e, data[i]); err != nil {
			return err
		} else if changed {
			put.mark(blocks[keys[i]])
		}
	}
	return put.flush(ctx, q, out)
}

// foldOne folds one event into the block it is about and reports whether that
// changed its row.
func foldOne(blocks map[blockKey]*dbsqlc.Block, key blockKey, e foldEvent, d foldData) (bool, error) {
	row := blocks[key]
	switch e.kind {
	case conversation.EventBlockStart, conversation.EventBlockComplete:
		if d.Block == nil {
			return false, nil
		}
		if row == nil {
			row = &dbsqlc.Block{
				SessionID: key.sessionID, ConversationID: key.conversationID, BlockID: key.blockID,
				FirstSeq: e.seq, Position: e.seq,
			}
			blocks[key] = row
		}
		if row.Removed {
			row.Removed, row.Position = false, e.seq
		}
		row.TextSeq, row.Live = e.seq, takesText(*d.Block)
		return true, putBlock(row, *d.Block)
	case conversation.EventTextDelta:
		if row == nil || row.Removed || row.Live {
			return false, nil
		}
		row.Live = true // a reader looks for the text behind TextSeq
		return true, nil
	case conversation.EventBlockUpdate:
		if row == nil || row.Removed {
			return false, nil
		}
		return true, updateBlock(row, e)
	case conversation.EventBlockRemoved:
		if row == nil || row.Removed {
			return false, nil
		}
		row.Removed, row.Live = true, false
		return true, nil
	}
	return false, nil
}

// updateBlock does to a row what the fold of the whole stream would do.
func updateBlock(row *dbsqlc.Block, update foldEvent) error {
	start, err := json.Marshal(map[string]json.RawMessage{"block": row.Block})
	if err != nil {
		return fmt.Errorf("stored block %s: %w", row.BlockID, err)
	}
	var f conversation.Folder
	if err := f.Apply(conversation.EventBlockStart, conversation.Main, start); err != nil {
		return fmt.Errorf("stored block %s: %w", row.BlockID, err)
	}
	// Updates that are not what they should be change nothing; the event is in
	// the log all the same.
	_ = f.Apply(update.kind, conversation.Main, update.data)
	return putBlock(row, f.Conversation().Threads[0].Blocks[0])
}

// takesText reports whether deltas are to be expected for a block.
func takesText(b conversation.Block) bool {
	switch b.Type {
	case conversation.AssistantText, conversation.Thinking, conversation.UserMessage:
		return b.Status.Open()
	}
	return false
}

func putBlock(row *dbsqlc.Block, block conversation.Block) error {
	data, err := json.Marshal(block)
	if err != nil {
		return fmt.Errorf("block %s: %w", block.ID, err)
	}
	row.Block = data
	return nil
}

// blockPut collects rows that changed, each once.
type blockPut struct {
	rows []*dbsqlc.Block
	seen map[*dbsqlc.Block]bool
}

func (p *blockPut) mark(row *dbsqlc.Block) {
	if p.seen[row] {
		return
	}
	if p.seen == nil {
		p.seen = map[*dbsqlc.Block]bool{}
	}
	p.seen[row] = true
	p.rows = append(p.rows, row)
}

func (p *blockPut) flush(ctx context.Context, q *dbsqlc.Queries, tx dbsqlc.DBTX) error {
	if len(p.rows) == 0 {
		return nil
	}
	var params dbsqlc.BlocksPutParams
	for _, row := range p.rows {
		params.SessionIds = append(params.SessionIds, row.SessionID)
		params.ConversationIds = append(params.ConversationIds, row.ConversationID)
		params.BlockIds = append(params.BlockIds, row.BlockID)
		params.FirstSeqs = append(params.FirstSeqs, row.FirstSeq)
		params.Positions = append(params.Positions, row.Position)
		params.TextSeqs = append(params.TextSeqs, row.TextSeq)
		params.Lives = append(params.Lives, row.Live)
		params.Removeds = append(params.Removeds, row.Removed)
		params.Blocks = append(params.Blocks, string(row.Block))
	}
	return q.BlocksPut(ctx, tx, &params)
}
