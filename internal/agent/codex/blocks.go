package codex

import (
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// maxOpen bounds the text and the input that are kept of an open block. A block that completes is
// emitted whole; a longer one that is aborted only changes its state.
const maxOpen = 8 << 10

// ledger keeps the open blocks. It returns each change as events.
type ledger struct {
	Open []*openBlock `json:"open,omitempty"` // in the order they were opened
}

type openBlock struct {
	Conversation string             `json:"conversation"`
	Turn         string             `json:"turn"`
	Block        conversation.Block `json:"block"`
	Text         []byte             `json:"text,omitempty"` // deltas so far; the block's content is empty meanwhile
	// Part is the part of a summary that the newest delta belonged to.
	Part int `json:"part,omitempty"`
	// Long: some of the block is not kept.
	Long bool `json:"long,omitempty"`
}

// maxBlocks bounds how many blocks are open at once. No agent has so many; beyond it the oldest
// counts as aborted.
const maxBlocks = 64

// start opens a block.
func (l *ledger) start(o *openBlock, at time.Time) []conversation.Event {
	var events []conversation.Event
	if len(l.Open) >= maxBlocks {
		events = append(events, l.close(l.Open[0], conversation.Aborted, at))
	}
	l.Open = append(l.Open, o)
	return append(events, conversation.Event{
		Type: conversation.EventBlockStart, ConversationID: o.Conversation, At: at,
		Data: conversation.BlockStart{Block: o.Block},
	})
}

// find returns the open block of that id, or nil.
func (l *ledger) find(where, id string) *openBlock {
	for _, o := range slices.Backward(l.Open) {
		if o.Block.ID == id && o.Conversation == where {
			return o
		}
	}
	return nil
}

// delta appends to an open block.
func (o *openBlock) delta(words string, at time.Time) conversation.Event {
	if len(o.Text)+len(words) > maxOpen {
		o.Long, o.Text = true, nil
	}
	if !o.Long {
		o.Text = append(o.Text, words...)
	}
	return conversation.Event{
		Type: conversation.EventTextDelta, ConversationID: o.Conversation, At: at,
		Data: conversation.TextDelta{BlockID: o.Block.ID, Delta: words},
	}
}

// wordless reports whether the block is of a text that has begun and has no words.
func (o *openBlock) wordless() bool {
	return o.Block.Type == conversation.AssistantText && len(o.Text) == 0 && !o.Long
}

// running shows what a call is called with.
func (o *openBlock) running(u conversation.Updates, at time.Time) conversation.Event {
	u.Status = conversation.Running
	o.Block.Status = conversation.Running
	if u.SubagentID != "" {
		o.Block.SubagentID = u.SubagentID
	}
	if len(u.Input) > maxOpen {
		o.Long = true
	} else if len(u.Input) > 0 {
		o.Block.Input = u.Input
	}
	return conversation.Event{
		Type: conversation.EventBlockUpdate, ConversationID: o.Conversation, At: at,
		Data: conversation.BlockUpdate{BlockID: o.Block.ID, Updates: u},
	}
}

// close completes a block with what the ledger has of it.
func (l *ledger) close(o *openBlock, status conversation.BlockStatus, at time.Time) conversation.Event {
	l.forget(o)
	if o.Long {
		return conversation.Event{
			Type: conversation.EventBlockUpdate, ConversationID: o.Conversation, At: at,
			Data: conversation.BlockUpdate{BlockID: o.Block.ID, Updates: conversation.Updates{Status: status}},
		}
	}
	if len(o.Text) > 0 {
		o.Block.Content = string(o.Text)
	}
	o.Block.Status = status
	return complete(o.Conversation, o.Block, at)
}

// remove takes an open block back.
func (l *ledger) remove(o *openBlock, at time.Time) conversation.Event {
	l.forget(o)
	return conversation.Event{
		Type: conversation.EventBlockRemoved, ConversationID: o.Conversation, At: at,
		Data: conversation.BlockRemoved{BlockID: o.Block.ID},
	}
}

func (l *ledger) forget(o *openBlock) {
	l.Open = slices.DeleteFunc(l.Open, func(x *openBlock) bool { return x == o })
}

func complete(where string, b conversation.Block, at time.Time) conversation.Event {
	return conversation.Event{
		Type: conversation.EventBlockComplete, ConversationID: where, At: at,
		Data: conversation.BlockComplete{Block: b},
	}
}

// whole shows a block that is there all at once. Its start has what identifies it and its
// completion has everything, so that nothing long is sent twice.
func whole(where string, b conversation.Block, at time.Time) []conversation.Event {
	head := conversation.Block{
		ID: b.ID, Type: b.Type, Status: conversation.Streaming, CreatedAt: b.CreatedAt,
		PromptID: b.PromptID, Author: b.Author, Name: b.Name, ToolUseID: b.ToolUseID, Subtype: b.Subtype,
	}
	if b.Type == conversation.ToolResult {
		head.Status = conversation.Running
	}
	return []conversation.Event{
		{Type: conversation.EventBlockStart, ConversationID: where, At: at, Data: conversation.BlockStart{Block: head}},
		complete(where, b, at),
	}
}
