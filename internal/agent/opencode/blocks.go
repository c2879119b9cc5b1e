package opencode

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// What a translator keeps between two frames is bounded. Exceeding these bounds only affects what
// is aborted: a block that completes is whole in its last frame.
const (
	maxKeptInput = 12 << 10 // of all calls that are at work
	maxMessages  = 48
)

// work is what may still change: messages, and the blocks that are open.
type work struct {
	ledger.Ledger[*openBlock]
	Messages []*openMessage `json:"messages,omitempty"`
}

// openMessage is a message whose parts are still coming.
type openMessage struct {
	ID           string    `json:"id"`
	Session      string    `json:"session"`
	Conversation string    `json:"conversation"`
	User         bool      `json:"user,omitempty"`
	Summary      bool      `json:"summary,omitempty"`
	Created      time.Time `json:"created"`
	// Failed: the agent has reported an error; Reported: and that has been shown.
	Failed   bool `json:"failed,omitempty"`
	Reported bool `json:"told,omitempty"`
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
	ledger.Entry
	Message string `json:"message"`
	// Whole: the text is complete, but may still turn out to be aborted.
	Whole bool `json:"whole,omitempty"`
	// Cut: there was more than could be kept.
	Cut bool `json:"cut,omitempty"`
	// Call is what the model calls the call. Printed is how much of its output has been shown.
	Call    string `json:"call,omitempty"`
	Printed int    `json:"printed,omitempty"`
}

func (w *work) message(id string) *openMessage {
	for _, m := range slices.Backward(w.Messages) {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// newest is the answer of a conversation that is being written, or nil.
func (w *work) newest(where string) *openMessage {
	for _, m := range slices.Backward(w.Messages) {
		if m.Conversation == where && !m.User {
			return m
		}
	}
	return nil
}

// writing reports whether an answer of the main conversation is not over yet.
func (w *work) writing() bool {
	return slices.ContainsFunc(w.Messages, func(m *openMessage) bool {
		return !m.User && !m.Over && m.Conversation == conversation.Main
	})
}

// begin notes a message. Where there are too many, one to which nothing more belongs is forgotten.
func (w *work) begin(m *openMessage) {
	if len(w.Messages) >= maxMessages {
		i := slices.IndexFunc(w.Messages, func(x *openMessage) bool {
			return (x.Over || x.User) && !slices.ContainsFunc(w.Open, func(o *openBlock) bool { return o.Message == x.ID })
		})
		w.Messages = slices.Delete(w.Messages, max(0, i), max(0, i)+1)
	}
	w.Messages = append(w.Messages, m)
}

// saw notes a part and reports whether it is new. The ids of a message's parts ascend.
func (m *openMessage) saw(id string) bool {
	if id <= m.Last {
		return false
	}
	m.Last = strings.Clone(id)
	return true
}

// append adds to a text.
func (w *work) append(o *openBlock, delta string) {
	kept := 0
	for _, x := range w.Open {
		kept += len(x.Text)
	}
	if o.Cut || kept+len(delta) > ledger.MaxKept {
		o.Cut = true
		return
	}
	o.Text = conversation.AppendText(o.Text, delta)
}

// keep stores the input of a call, which is shown once more when the call is aborted.
func (w *work) keep(o *openBlock, input json.RawMessage) {
	kept := 0
	for _, x := range w.Open {
		kept += len(x.Block.Input)
	}
	if kept-len(o.Block.Input)+len(input) <= maxKeptInput {
		o.Block.Input = bytes.Clone(input)
	}
}

// Closed completes a block with what is kept of it.
func (o *openBlock) Closed(status conversation.BlockStatus, at time.Time) conversation.Event {
	if o.Block.Type == conversation.ToolResult {
		return o.Removed(at) // an aborted call has no result
	}
	b := o.Block
	if len(o.Text) > 0 {
		say(&b, string(o.Text))
	}
	b.Status = status
	return ledger.Complete(o.Conversation, b, at)
}

// settle closes the complete texts of a message once it is known whether they were aborted.
func (w *work) settle(m *openMessage, status conversation.BlockStatus, at time.Time) []conversation.Event {
	var events []conversation.Event
	for _, o := range slices.Clone(w.Open) {
		if o.Message == m.ID && o.Whole {
			events = append(events, w.Close(o, status, at))
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
func (w *work) abandon(m *openMessage, at time.Time) []conversation.Event {
	var events []conversation.Event
	for _, o := range slices.Clone(w.Open) {
		text := o.Block.Type != conversation.ToolResult && o.Block.Status == conversation.Streaming
		if o.Message == m.ID && text && !o.Whole {
			events = append(events, w.Remove(o, at))
		}
	}
	return events
}

// Cut closes everything.
func (w *work) Cut(at time.Time) []conversation.Event {
	var events []conversation.Event
	for _, m := range w.Messages {
		events = append(events, w.settle(m, m.fate(), at)...)
	}
	for len(w.Open) > 0 {
		o := w.Open[0]
		if o.Block.Subtype == subtypeRetry {
			events = append(events, w.Remove(o, at))
			continue
		}
		events = append(events, w.Close(o, conversation.Aborted, at))
	}
	w.Messages = nil
	return events
}
