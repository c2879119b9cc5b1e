package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
)

// blockFold keeps the table of blocks in step with events that are written in the same transaction.
// Text deltas are not folded here, since that would rewrite a long text with each delta: they stay
// events until their block is closed by the agent, or settled with its run.
type blockFold struct {
	drafts [][]foldDraft // as the appends of the batch and their events
	get    dbsqlc.BlocksGetParams
	blocks map[blockKey]*dbsqlc.Block
	events []foldEvent // that were let into the log
}

// foldDraft is what an event that may come into the log is about.
type foldDraft struct {
	key   blockKey // the zero key: no block
	data  foldData
	plain bool // the event's data is known to be JSON in UTF-8
}

// foldEvent is an event that is in the log.
type foldEvent struct {
	draft foldDraft
	seq   int64
	kind  conversation.EventType
	data  json.RawMessage
}

type blockKey struct {
	sessionID, conversationID, blockID string
}

// foldData is what of an event's data the fold looks at, whatever its type.
type foldData struct {
	Block   *conversation.Block `json:"block"`
	BlockID string              `json:"blockId"`
}

// newBlockFold finds out which blocks the events of a batch are about.
func newBlockFold(appends []eventlog.Append) *blockFold {
	f := &blockFold{drafts: make([][]foldDraft, len(appends))}
	asked := map[blockKey]bool{}
	for i, a := range appends {
		f.drafts[i] = make([]foldDraft, len(a.Events))
		for n, d := range a.Events {
			draft, ok := readFoldDraft(a.SessionID, d)
			if !ok {
				continue
			}
			f.drafts[i][n] = draft
			if !asked[draft.key] {
				asked[draft.key] = true
				f.get.SessionIds = append(f.get.SessionIds, draft.key.sessionID)
				f.get.ConversationIds = append(f.get.ConversationIds, draft.key.conversationID)
				f.get.BlockIds = append(f.get.BlockIds, draft.key.blockID)
			}
		}
	}
	return f
}

// readFoldDraft reports false for an event that concerns no block: by its type,
// or because its data is not what its type says. It is in the log all the same.
func readFoldDraft(sessionID string, d eventlog.Draft) (foldDraft, bool) {
	switch conversation.EventType(d.Type) {
	case conversation.EventBlockStart, conversation.EventBlockComplete, conversation.EventBlockUpdate,
		conversation.EventBlockRemoved, conversation.EventTextDelta:
	default:
		return foldDraft{}, false
	}
	if id, ok := plainDelta(d); ok {
		key := blockKey{sessionID, cmp.Or(text(d.ConversationID), conversation.Main), id}
		return foldDraft{key: key, data: foldData{BlockID: id}, plain: true}, true
	}
	var out foldDraft
	if json.Unmarshal(storable(d.Data), &out.data) != nil {
		return foldDraft{}, false
	}
	id := out.data.BlockID
	if out.data.Block != nil {
		id = out.data.Block.ID
	}
	out.key = blockKey{sessionID, cmp.Or(text(d.ConversationID), conversation.Main), text(id)}
	return out, true
}

// plainDelta returns the block of a text delta whose data is written as [conversation.Encode] writes it and needs no escapes,
// as nearly all are. Its data is JSON.
func plainDelta(d eventlog.Draft) (blockID string, ok bool) {
	if d.Type != string(conversation.EventTextDelta) {
		return "", false
	}
	rest, begins := bytes.CutPrefix(d.Data, []byte(`{"blockId":"`))
	rest, ends := bytes.CutSuffix(rest, []byte(`"}`))
	id, delta, both := bytes.Cut(rest, []byte(`","delta":"`))
	if !begins || !ends || !both || !plain(id) || !plain(delta) {
		return "", false
	}
	return string(id), true
}

// plain reports whether bytes may be between the quotes of a string in JSON, and are the string.
func plain(s []byte) bool {
	for _, c := range s {
		if c < ' ' || c == '"' || c == '\\' {
			return false
		}
	}
	return utf8.Valid(s)
}

// read asks for the blocks of the batch, if it is about any.
func (f *blockFold) read(ctx context.Context, q *dbsqlc.Queries, db dbsqlc.DBTX) error {
	if len(f.get.BlockIds) == 0 {
		return nil
	}
	rows, err := q.BlocksGet(ctx, db, &f.get)
	if err != nil {
		return err
	}
	f.blocks = make(map[blockKey]*dbsqlc.Block, len(rows))
	for _, row := range rows {
		f.blocks[blockKey{row.SessionID, row.ConversationID, row.BlockID}] = &row
	}
	return nil
}

// add folds the event of a draft, which has come into the log.
func (f *blockFold) add(draft foldDraft, seq int64, kind conversation.EventType, data json.RawMessage) {
	if draft.key != (blockKey{}) {
		f.events = append(f.events, foldEvent{draft: draft, seq: seq, kind: kind, data: data})
	}
}

// flush writes the blocks that changed to out.
func (f *blockFold) flush(ctx context.Context, q *dbsqlc.Queries, out dbsqlc.DBTX) error {
	var put blockPut
	for _, e := range f.events {
		if changed, err := foldOne(f.blocks, e.draft.key, e, e.draft.data); err != nil {
			return err
		} else if changed {
			put.mark(f.blocks[e.draft.key])
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
		row.Live = true // a reader looks for the text after TextSeq
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
