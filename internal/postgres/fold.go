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

// blockFold updates the table of blocks with the events that are written in the same transaction.
// It does not fold text deltas, since each would rewrite the whole text: they stay events until the
// agent closes their block, or the end of the run settles it.
type blockFold struct {
	drafts [][]foldDraft // in the order of the appends and their events
	get    dbsqlc.BlocksGetParams
	blocks map[blockKey]*dbsqlc.Block
	events []foldEvent // accepted into the log
}

// foldDraft is an event that may be accepted into the log, and the block it concerns.
type foldDraft struct {
	key   blockKey // zero for no block
	data  foldData
	plain bool // the event's data is known to be valid JSON in UTF-8
}

// foldEvent is an event that has been accepted into the log.
type foldEvent struct {
	draft foldDraft
	seq   int64
	kind  conversation.EventType
	data  json.RawMessage
}

type blockKey struct {
	sessionID, conversationID, blockID string
}

// foldData has the fields of events that the fold reads, for all types.
type foldData struct {
	Block   *conversation.Block `json:"block"`
	BlockID string              `json:"blockId"`
}

// newBlockFold finds the blocks that the events of a batch concern.
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

// readFoldDraft returns false for an event that concerns no block, because of its type or because
// its data does not match the type. Such an event is stored in the log nevertheless.
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

// plainDelta returns the block of a text delta whose data has the form that [conversation.Encode]
// writes and contains no escapes, as nearly all do. Such data is valid JSON.
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

// plain reports whether s can stand unescaped between the quotes of a JSON string.
func plain(s []byte) bool {
	for _, c := range s {
		if c < ' ' || c == '"' || c == '\\' {
			return false
		}
	}
	return utf8.Valid(s)
}

// read queries the blocks of the batch, if it concerns any.
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

// add folds the event of a draft that was accepted into the log.
func (f *blockFold) add(draft foldDraft, seq int64, kind conversation.EventType, data json.RawMessage) {
	if draft.key != (blockKey{}) {
		f.events = append(f.events, foldEvent{draft: draft, seq: seq, kind: kind, data: data})
	}
}

// changed returns the changed blocks.
func (f *blockFold) changed() (dbsqlc.BlocksPutParams, error) {
	var put blockPut
	for _, e := range f.events {
		if changed, err := foldOne(f.blocks, e.draft.key, e, e.draft.data); err != nil {
			return dbsqlc.BlocksPutParams{}, err
		} else if changed {
			put.mark(f.blocks[e.draft.key])
		}
	}
	return put.params(), nil
}

// foldOne folds an event into its block and reports whether that changed the block's row.
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
		row.Live = true // readers must read the text after TextSeq
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

// updateBlock updates a row like the fold of the whole stream would.
func updateBlock(row *dbsqlc.Block, update foldEvent) error {
	start, err := json.Marshal(map[string]json.RawMessage{"block": row.Block})
	if err != nil {
		return fmt.Errorf("stored block %s: %w", row.BlockID, err)
	}
	var f conversation.Folder
	if err := f.Apply(conversation.EventBlockStart, conversation.Main, start); err != nil {
		return fmt.Errorf("stored block %s: %w", row.BlockID, err)
	}
	// Invalid updates change nothing; the event is stored in the log nevertheless.
	_ = f.Apply(update.kind, conversation.Main, update.data)
	return putBlock(row, f.Conversation().Threads[0].Blocks[0])
}

// takesText reports whether a block may still receive deltas.
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

// blockPut collects changed rows, each once.
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
	params := p.params()
	return q.BlocksPut(ctx, tx, &params)
}

func (p *blockPut) params() (params dbsqlc.BlocksPutParams) {
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
	return params
}
