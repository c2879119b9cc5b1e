package gemini

import (
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// ledger keeps the open blocks whole, because a block that completes is shown whole. It returns
// each change as events.
type ledger struct {
	Open []*openBlock `json:"open,omitempty"` // in the order they were opened
}

type openBlock struct {
	Conversation string             `json:"conversation"`
	Block        conversation.Block `json:"block"`
	Text         []byte             `json:"text,omitempty"` // deltas so far; the block's content is empty meanwhile
	// Space ends what has come so far and is shown when more follows: the agent keeps its answers
	// without it.
	Space string `json:"space,omitempty"`
	Cut   bool   `json:"cut,omitempty"` // there was more text than a state may have
}

const (
	maxKept = 32 << 10 // bytes of open blocks in a state
	maxOpen = 64       // blocks that are open at once
)

// kept is what a state has of open blocks: the newest ones, and of those as much as there is room for.
func kept(open []*openBlock) []*openBlock {
	open = open[max(0, len(open)-maxOpen):]
	out := make([]*openBlock, len(open))
	room := maxKept
	for i, o := range slices.Backward(open) {
		short := *o
		if len(short.Text) > room {
			short.Text, short.Cut = short.Text[:room], true
		}
		room -= len(short.Text)
		if len(short.Block.Input) > room {
			short.Block.Input = nil
		}
		room -= len(short.Block.Input)
		out[i] = &short
	}
	return out
}

// start opens a block. Where too many are open, the oldest is closed as aborted.
func (l *ledger) start(o *openBlock, at time.Time) []conversation.Event {
	var events []conversation.Event
	if len(l.Open) >= maxOpen {
		events = append(events, l.close(l.Open[0], conversation.Aborted, at))
	}
	l.Open = append(l.Open, o)
	return append(events, conversation.Event{
		Type: conversation.EventBlockStart, ConversationID: o.Conversation, At: at,
		Data: conversation.BlockStart{Block: o.Block},
	})
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

func (l *ledger) forget(o *openBlock) {
	l.Open = slices.DeleteFunc(l.Open, func(x *openBlock) bool { return x == o })
}

// close completes an open block with what it has.
func (l *ledger) close(o *openBlock, status conversation.BlockStatus, at time.Time) conversation.Event {
	l.forget(o)
	if len(o.Text) > 0 {
		o.Block.Content = string(o.Text)
	}
	o.Block.Status = status
	return complete(o.Conversation, o.Block, at)
}

// settle shows a block as it finally is: it completes the open one of its id, or is shown whole.
func (l *ledger) settle(where string, b conversation.Block, at time.Time) []conversation.Event {
	if o := l.find(b.ID); o != nil {
		l.forget(o)
		return []conversation.Event{complete(o.Conversation, b, at)}
	}
	return whole(where, b, at)
}

// cut closes everything, as aborted.
func (l *ledger) cut(at time.Time) []conversation.Event {
	var events []conversation.Event
	for _, o := range slices.Clone(l.Open) {
		events = append(events, l.close(o, conversation.Aborted, at))
	}
	return events
}

func change(o *openBlock, u conversation.Updates, at time.Time) conversation.Event {
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
		SubagentID: b.SubagentID,
	}
	switch b.Type {
	case conversation.ToolUse, conversation.ToolResult, conversation.Subagent:
		head.Status = conversation.Running
	}
	return []conversation.Event{
		{Type: conversation.EventBlockStart, ConversationID: where, At: at, Data: conversation.BlockStart{Block: head}},
		complete(where, b, at),
	}
}
