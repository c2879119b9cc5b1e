package claude

import (
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// ledger keeps the blocks that are open, whole, because closing a block shows it whole. What it
// does to them it tells as events.
type ledger struct {
	Open []*openBlock `json:"open,omitempty"` // in the order they were opened
}

type openBlock struct {
	Conversation string             `json:"conversation"`
	Block        conversation.Block `json:"block"`
	Text         []byte             `json:"text,omitempty"` // deltas so far; the block's content is empty meanwhile
	// Message and Index say which part of which message of the model the block is, as long as the
	// model is still writing it. Message is empty once the agent has passed the part on whole.
	Message string `json:"message,omitempty"`
	Index   int    `json:"index,omitempty"`
}

// start opens a block.
func (l *ledger) start(o *openBlock, at time.Time) conversation.Event {
	l.Open = append(l.Open, o)
	return conversation.Event{
		Type: conversation.EventBlockStart, ConversationID: o.Conversation, At: at,
		Data: conversation.BlockStart{Block: o.Block},
	}
}

// find returns the open block of that id, or nil.
func (l *ledger) find(id string) *openBlock {
	for _, o := range slices.Backward(l.Open) {
		if o.Block.ID == id {
			return o
		}
	}
	return nil
}

// written returns the block of a part that the model is still writing, or nil.
func (l *ledger) written(message []byte, index int) *openBlock {
	for _, o := range slices.Backward(l.Open) {
		if o.Index == index && o.Message != "" && len(message) == len(o.Message) && string(message) == o.Message {
			return o
		}
	}
	return nil
}

// close completes an open block.
func (l *ledger) close(o *openBlock, status conversation.BlockStatus, at time.Time) conversation.Event {
	l.forget(o)
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

func update(o *openBlock, u conversation.Updates, at time.Time) conversation.Event {
	return conversation.Event{
		Type: conversation.EventBlockUpdate, ConversationID: o.Conversation, At: at,
		Data: conversation.BlockUpdate{BlockID: o.Block.ID, Updates: u},
	}
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
