package opencode

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// What a translator keeps between two frames is bounded. Exceeding these bounds only affects what
// is aborted: a block that completes is whole in its last frame.
const (
	maxKeptText  = 32 << 10 // of all texts that are being written
	maxKeptInput = 12 << 10 // of all calls that are at work
	maxOpen      = 64       // blocks; the oldest are given up first
	maxMessages  = 48
)

// ledger keeps the messages that may still change and the blocks that are open.
type ledger struct {
	Messages []*openMessage `json:"messages,omitempty"`
	Open     []*openBlock   `json:"open,omitempty"` // in the order they were opened
}

// openMessage is a message whose parts are still coming.
type openMessage struct {
	ID           string    `json:"id"`
	Session      string    `json:"session"`
	Conversation string    `json:"conversation"`
	User         bool      `json:"user,omitempty"`
	Summary      bool      `json:"summary,omitempty"`
	Created      time.Time `json:"created"`
	// Failed: the agent has reported an error; `Told`: and that has been shown.
	Failed bool `json:"failed,omitempty"`
	Told   bool `json:"told,omitempty"`
	// Over: the agent has said that it is, though it may be that not all of its parts have come.
	Over bool `json:"over,omitempty"`
	// Last is the newest of its parts.
	Last string `json:"last,omitempty"`
}

// native is the message in the form from which blocks are made.
func (m *openMessage) native() *opencodeformat.Message {
	out := &opencodeformat.Message{ID: m.ID, Role: "assistant", Time: opencodeformat.StampPair{Created: opencodeformat.Stamp(m.Created.UnixMilli())}}
	if m.User {
		out.Role = "user"
	}
	if m.Summary {
		out.Summary = json.RawMessage("true")
	}
	return out
}

// openBlock is a block that will change.
type openBlock struct {
	Conversation string             `json:"conversation"`
	Message      string             `json:"message"`
	Block        conversation.Block `json:"block"`
	// Text has the deltas so far; the block's content is empty meanwhile. Whole: the text is
	// complete, but may still turn out to be aborted.
	Text  []byte `json:"text,omitempty"`
	Whole bool   `json:"whole,omitempty"`
	// Cut: there was more than could be kept.
	Cut bool `json:"cut,omitempty"`
	// Call is what the model calls the call. Printed is how much of its output has been shown.
	Call    string `json:"call,omitempty"`
	Printed int    `json:"printed,omitempty"`
}

func (l *ledger) message(id string) *openMessage {
	for _, m := range slices.Backward(l.Messages) {
		if m.ID == id {
			return m
		}
	}
	return nil
}

func (l *ledger) find(id string) *openBlock {
	for _, o := range slices.Backward(l.Open) {
		if o.Block.ID == id {
			return o
		}
	}
	return nil
}

// newest is the answer of a conversation that is being written, or nil.
func (l *ledger) newest(where string) *openMessage {
	for _, m := range slices.Backward(l.Messages) {
		if m.Conversation == where && !m.User {
			return m
		}
	}
	return nil
}

// writing reports whether an answer of the main conversation is not over yet.
func (l *ledger) writing() bool {
	return slices.ContainsFunc(l.Messages, func(m *openMessage) bool {
		return !m.User && !m.Over && m.Conversation == conversation.Main
	})
}

// begin notes a message. Where there are too many, one to which nothing more belongs is forgotten.
func (l *ledger) begin(m *openMessage) {
	if len(l.Messages) >= maxMessages {
		i := slices.IndexFunc(l.Messages, func(x *openMessage) bool {
			return (x.Over || x.User) && !slices.ContainsFunc(l.Open, func(o *openBlock) bool { return o.Message == x.ID })
		})
		l.Messages = slices.Delete(l.Messages, max(0, i), max(0, i)+1)
	}
	l.Messages = append(l.Messages, m)
}

// saw notes a part and reports whether it is new. The ids of a message's parts ascend.
func (m *openMessage) saw(id string) bool {
	if id <= m.Last {
		return false
	}
	m.Last = strings.Clone(id)
	return true
}

// start opens a block.
func (l *ledger) start(o *openBlock, at time.Time) []conversation.Event {
	var events []conversation.Event
	if len(l.Open) >= maxOpen {
		events = l.close(l.Open[0], conversation.Aborted, at)
	}
	l.Open = append(l.Open, o)
	return append(events, conversation.Event{
		Type: conversation.EventBlockStart, ConversationID: o.Conversation, At: at,
		Data: conversation.BlockStart{Block: o.Block},
	})
}

// append adds to a text.
func (l *ledger) append(o *openBlock, delta string) {
	kept := 0
	for _, x := range l.Open {
		kept += len(x.Text)
	}
	if o.Cut || kept+len(delta) > maxKeptText {
		o.Cut = true
		return
	}
	o.Text = conversation.AppendText(o.Text, delta)
}

// keep stores the input of a call, which is shown once more when the call is aborted.
func (l *ledger) keep(o *openBlock, input json.RawMessage) {
	kept := 0
	for _, x := range l.Open {
		kept += len(x.Block.Input)
	}
	if kept-len(o.Block.Input)+len(input) <= maxKeptInput {
		o.Block.Input = bytes.Clone(input)
	}
}

// close completes a block with what is kept of it.
func (l *ledger) close(o *openBlock, status conversation.BlockStatus, at time.Time) []conversation.Event {
	b := o.Block
	if len(o.Text) > 0 {
		say(&b, string(o.Text))
	}
	if b.Type == conversation.ToolResult {
		return l.remove(o, at) // an aborted call has no result
	}
	b.Status = status
	return l.complete(o, b, at)
}

// complete completes a block.
func (l *ledger) complete(o *openBlock, b conversation.Block, at time.Time) []conversation.Event {
	l.forget(o)
	return []conversation.Event{{
		Type: conversation.EventBlockComplete, ConversationID: o.Conversation, At: at,
		Data: conversation.BlockComplete{Block: b},
	}}
}

// remove takes a block back.
func (l *ledger) remove(o *openBlock, at time.Time) []conversation.Event {
	l.forget(o)
	return []conversation.Event{{
		Type: conversation.EventBlockRemoved, ConversationID: o.Conversation, At: at,
		Data: conversation.BlockRemoved{BlockID: o.Block.ID},
	}}
}

func (l *ledger) forget(o *openBlock) {
	l.Open = slices.DeleteFunc(l.Open, func(x *openBlock) bool { return x == o })
}

// settle closes the complete texts of a message once it is known whether they were aborted.
func (l *ledger) settle(m *openMessage, status conversation.BlockStatus, at time.Time) []conversation.Event {
	var events []conversation.Event
	for _, o := range slices.Clone(l.Open) {
		if o.Message == m.ID && o.Whole {
			events = append(events, l.close(o, status, at)...)
		}
	}
	return events
}

// fate is the final status of the last text of a message.
func (m *openMessage) fate() conversation.BlockStatus {
	if m.Failed {
		return conversation.Aborted
	}
	return conversation.Complete
}

// abandon removes the texts of a message that were being written: the attempt has failed, and
// another begins.
func (l *ledger) abandon(m *openMessage, at time.Time) []conversation.Event {
	var events []conversation.Event
	for _, o := range slices.Clone(l.Open) {
		text := o.Block.Type != conversation.ToolResult && o.Block.Status == conversation.Streaming
		if o.Message == m.ID && text && !o.Whole {
			events = append(events, l.remove(o, at)...)
		}
	}
	return events
}

// cut closes everything.
func (l *ledger) cut(at time.Time) []conversation.Event {
	var events []conversation.Event
	for _, m := range l.Messages {
		events = append(events, l.settle(m, m.fate(), at)...)
	}
	for len(l.Open) > 0 {
		o := l.Open[0]
		if o.Block.Subtype == subtypeRetry {
			events = append(events, l.remove(o, at)...)
			continue
		}
		events = append(events, l.close(o, conversation.Aborted, at)...)
	}
	l.Messages = nil
	return events
}

func update(o *openBlock, u conversation.Updates, at time.Time) conversation.Event {
	return conversation.Event{
		Type: conversation.EventBlockUpdate, ConversationID: o.Conversation, At: at,
		Data: conversation.BlockUpdate{BlockID: o.Block.ID, Updates: u},
	}
}

// whole shows a block that is there all at once.
func whole(where string, b conversation.Block, at time.Time) []conversation.Event {
	head := b
	head.Status, head.Content, head.Message, head.Input, head.Output = conversation.Streaming, "", "", nil, nil
	return []conversation.Event{
		{Type: conversation.EventBlockStart, ConversationID: where, At: at, Data: conversation.BlockStart{Block: head}},
		{Type: conversation.EventBlockComplete, ConversationID: where, At: at, Data: conversation.BlockComplete{Block: b}},
	}
}
