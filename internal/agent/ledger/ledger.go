// Package ledger keeps the blocks that a turn has opened and not yet completed, and returns an
// event for each change. Translators use it in workers; bridges that write a transcript use it in
// sandboxes.
package ledger

import (
	"cmp"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// Max bounds the number of open blocks. No agent reaches it.
const Max = 64

// MaxKept bounds the text that a state keeps of all open blocks together, for agents whose blocks
// complete with their full content: the kept text matters only if a turn is aborted. Agents that
// write one block after the other bound each block instead.
const MaxKept = 32 << 10

// MaxText bounds the text that a state keeps of one open block, for agents that report the complete
// text at the end of the block. The state is written with every commit, so it must not grow with the
// text. A longer block that is aborted gets only its status: readers have its text.
const MaxText = 256

// Entry is an open block. Agents that need more data per block embed an Entry in their own type.
type Entry struct {
	Conversation string             `json:"conversation,omitempty"` // empty: the main one
	Block        conversation.Block `json:"block"`
	Text         []byte             `json:"text,omitempty"` // deltas so far; the block's own content stays empty until it ends
}

// Started returns the event that opens the block.
func (e *Entry) Started(at time.Time) conversation.Event {
	return e.event(conversation.EventBlockStart, conversation.BlockStart{Block: e.Block}, at)
}

// Delta returns the event for more text. It does not keep the text, because the amount to keep
// depends on the agent.
func (e *Entry) Delta(text string, at time.Time) conversation.Event {
	return e.event(conversation.EventTextDelta, conversation.TextDelta{BlockID: e.Block.ID, Delta: text}, at)
}

// Updated returns the event for a change. The caller applies the change to Block. An event with the
// input of a call also has the name of its tool, so that it can be shown by itself.
func (e *Entry) Updated(u conversation.Updates, at time.Time) conversation.Event {
	if len(u.Input) > 0 && u.Name == "" && e.Block.Type == conversation.ToolUse {
		u.Name = e.Block.Name
	}
	return e.event(conversation.EventBlockUpdate, conversation.BlockUpdate{BlockID: e.Block.ID, Updates: u}, at)
}

// Closed returns the event that completes the block with the content kept so far. A type that
// embeds an Entry may override it.
func (e *Entry) Closed(status conversation.BlockStatus, at time.Time) conversation.Event {
	if len(e.Text) > 0 {
		e.Block.Content = string(e.Text)
	}
	e.Block.Status = status
	return Complete(e.Conversation, e.Block, at)
}

// Removed returns the event that removes the block.
func (e *Entry) Removed(at time.Time) conversation.Event {
	return e.event(conversation.EventBlockRemoved, conversation.BlockRemoved{BlockID: e.Block.ID}, at)
}

func (e *Entry) event(kind conversation.EventType, data any, at time.Time) conversation.Event {
	return event(e.Conversation, kind, data, at)
}

func (e *Entry) entry() *Entry { return e }

// Open is a pointer to an Entry, or to a struct that embeds one.
type Open interface {
	comparable
	Closed(status conversation.BlockStatus, at time.Time) conversation.Event
	entry() *Entry
}

// Ledger keeps open blocks. It is part of a translator's state.
type Ledger[O Open] struct {
	Open []O `json:"open,omitempty"` // in the order they were opened
}

// Start opens a block. If too many are open, the oldest is closed as aborted.
func (l *Ledger[O]) Start(o O, at time.Time) []conversation.Event {
	var events []conversation.Event
	if len(l.Open) >= Max {
		events = append(events, l.Close(l.Open[0], conversation.Aborted, at))
	}
	l.Open = append(l.Open, o)
	return append(events, o.entry().Started(at))
}

// Find returns the newest open block with that id, or nil.
func (l *Ledger[O]) Find(id string) O {
	for _, o := range slices.Backward(l.Open) {
		if o.entry().Block.ID == id {
			return o
		}
	}
	var none O
	return none
}

// Close completes an open block with the content kept so far.
func (l *Ledger[O]) Close(o O, status conversation.BlockStatus, at time.Time) conversation.Event {
	l.Forget(o)
	return o.Closed(status, at)
}

// Settle completes an open block as b.
func (l *Ledger[O]) Settle(o O, b conversation.Block, at time.Time) conversation.Event {
	l.Forget(o)
	return Complete(o.entry().Conversation, b, at)
}

// Show shows a block in its final form: it completes the open block with the same id, or shows the
// whole block.
func (l *Ledger[O]) Show(where string, b conversation.Block, at time.Time) []conversation.Event {
	var none O
	if o := l.Find(b.ID); o != none {
		return []conversation.Event{l.Settle(o, b, at)}
	}
	return Whole(where, b, at)
}

// Remove removes an open block.
func (l *Ledger[O]) Remove(o O, at time.Time) conversation.Event {
	l.Forget(o)
	return o.entry().Removed(at)
}

// Forget drops an open block without an event.
func (l *Ledger[O]) Forget(o O) {
	l.Open = slices.DeleteFunc(l.Open, func(x O) bool { return x == o })
}

// Cut closes all open blocks as aborted.
func (l *Ledger[O]) Cut(at time.Time) []conversation.Event {
	var events []conversation.Event
	for _, o := range slices.Clone(l.Open) {
		events = append(events, l.Close(o, conversation.Aborted, at))
	}
	return events
}

// Complete returns the event that completes a block.
func Complete(where string, b conversation.Block, at time.Time) conversation.Event {
	return event(where, conversation.EventBlockComplete, conversation.BlockComplete{Block: b}, at)
}

// Whole shows a block that is complete at once. Its start contains only the fields that identify
// it, and its completion contains everything, so that no long content is sent twice.
func Whole(where string, b conversation.Block, at time.Time) []conversation.Event {
	head := conversation.Block{
		ID: b.ID, Type: b.Type, Status: conversation.Streaming, CreatedAt: b.CreatedAt,
		PromptID: b.PromptID, Author: b.Author, Name: b.Name, ToolUseID: b.ToolUseID, Subtype: b.Subtype,
		SubagentID: b.SubagentID,
	}
	switch b.Type {
	case conversation.ToolUse, conversation.ToolResult, conversation.Subagent:
		head.Status = conversation.Running
	}
	return []conversation.Event{event(where, conversation.EventBlockStart, conversation.BlockStart{Block: head}, at), Complete(where, b, at)}
}

func event(where string, kind conversation.EventType, data any, at time.Time) conversation.Event {
	return conversation.Event{Type: kind, ConversationID: cmp.Or(where, conversation.Main), At: at, Data: data}
}
