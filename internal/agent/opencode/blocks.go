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

// Bounds of the content that a translator keeps between two frames. Exceeding them affects only
// aborted blocks: the last frame of a block that completes contains its whole content.
const (
	maxKeptInput = 12 << 10 // of all running calls
	maxMessages  = 48
)

// work contains everything that may still change: incomplete messages and open blocks.
type work struct {
	ledger.Ledger[*openBlock]
	Messages []*openMessage `json:"messages,omitempty"`
}

// openMessage is a message with more parts to come.
type openMessage struct {
	ID           string    `json:"id"`
	Session      string    `json:"session"`
	Conversation string    `json:"conversation"`
	User         bool      `json:"user,omitempty"`
	Summary      bool      `json:"summary,omitempty"`
	Created      time.Time `json:"created"`
	// Failed: the agent has reported an error. Reported: the error has been shown.
	Failed   bool `json:"failed,omitempty"`
	Reported bool `json:"told,omitempty"`
	// Ended is set once the agent has reported the end of the message. Some of its parts may still
	// be missing.
	Ended bool `json:"over,omitempty"`
	// Last is the id of its newest part.
	Last string `json:"last,omitempty"`
}

// native returns the message in the form from which blocks are created.
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

// openBlock is a block that may still change.
type openBlock struct {
	ledger.Entry
	Message string `json:"message"`
	// Whole is set if the text is complete. It may still turn out to be aborted.
	Whole bool `json:"whole,omitempty"`
	// Cut is set if not all of the text was kept.
	Cut bool `json:"cut,omitempty"`
	// Call is the model's id of the call. Printed is how much of its output has been shown.
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

// newest returns the answer in progress of a conversation, or nil.
func (w *work) newest(where string) *openMessage {
	for _, m := range slices.Backward(w.Messages) {
		if m.Conversation == where && !m.User {
			return m
		}
	}
	return nil
}

// writing reports whether an answer of the main conversation is in progress.
func (w *work) writing() bool {
	return slices.ContainsFunc(w.Messages, func(m *openMessage) bool {
		return !m.User && !m.Ended && m.Conversation == conversation.Main
	})
}

// begin adds a message. If there are too many, it forgets one that is complete.
func (w *work) begin(m *openMessage) {
	if len(w.Messages) >= maxMessages {
		i := slices.IndexFunc(w.Messages, func(x *openMessage) bool {
			return (x.Ended || x.User) && !slices.ContainsFunc(w.Open, func(o *openBlock) bool { return o.Message == x.ID })
		})
		w.Messages = slices.Delete(w.Messages, max(0, i), max(0, i)+1)
	}
	w.Messages = append(w.Messages, m)
}

// saw records a part and reports whether it is new. The ids of a message's parts ascend.
func (m *openMessage) saw(id string) bool {
	if id <= m.Last {
		return false
	}
	m.Last = strings.Clone(id)
	return true
}

// append appends to a text.
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

// keep keeps the input of a call, which is shown again if the call is aborted.
func (w *work) keep(o *openBlock, input json.RawMessage) {
	kept := 0
	for _, x := range w.Open {
		kept += len(x.Block.Input)
	}
	if kept-len(o.Block.Input)+len(input) <= maxKeptInput {
		o.Block.Input = bytes.Clone(input)
	}
}

// Closed completes a block with the content kept so far.
func (o *openBlock) Closed(status conversation.BlockStatus, at time.Time) conversation.Event {
	if o.Block.Type == conversation.ToolResult {
		return o.Removed(at) // an aborted call has no result
	}
	b := o.Block
	if len(o.Text) > 0 {
		setText(&b, string(o.Text))
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

// fate returns the final status of the last text in a message.
func (m *openMessage) fate() conversation.BlockStatus {
	if m.Failed {
		return conversation.Aborted
	}
	return conversation.Complete
}

// abandon removes the texts in progress of a message, because the attempt has failed and another
// begins.
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

// Cut aborts all open blocks.
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
