package acp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
)

// recorder makes blocks of what an agent says of its work. The bridge keeps one to write the
// transcript, a translator has one to show what streams.
type recorder struct {
	// Prefix begins the ids of text, for which the agent has none; Texts counts it.
	Prefix string       `json:"prefix,omitempty"`
	Texts  int          `json:"texts,omitempty"`
	Open   []*openBlock `json:"open,omitempty"` // in the order they were opened
	// Calls counts the calls of tools.
	Calls int64 `json:"calls,omitempty"`
	// Interrupted: whatever ends from now on was aborted.
	Interrupted bool `json:"interrupted,omitempty"`
}

type openBlock struct {
	Block     conversation.Block `json:"block"`
	Text      []byte             `json:"text,omitempty"` // deltas so far; the block's content is empty meanwhile
	MessageID string             `json:"messageId,omitempty"`
	Shown     json.RawMessage    `json:"shown,omitempty"` // what a call has brought so far
	Output    json.RawMessage    `json:"output,omitempty"`
	Given     bool               `json:"given,omitempty"` // the agent has reported the call's input
	Cut       bool               `json:"cut,omitempty"`   // there was more text than a state may have
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
		for _, raw := range []*json.RawMessage{&short.Block.Input, &short.Shown, &short.Output} {
			if len(*raw) > room {
				*raw = nil
			}
			room -= len(*raw)
		}
		out[i] = &short
	}
	return out
}

func (r *recorder) find(id string) *openBlock {
	for _, o := range slices.Backward(r.Open) {
		if o.Block.ID == id {
			return o
		}
	}
	return nil
}

// text is the text that streams, or nil.
func (r *recorder) text() *openBlock {
	for _, o := range r.Open {
		if o.Block.Type == conversation.AssistantText || o.Block.Type == conversation.Thinking {
			return o
		}
	}
	return nil
}

// start opens a block. Where too many are open, the oldest is closed as aborted.
func (r *recorder) start(o *openBlock, at time.Time) []conversation.Event {
	var events []conversation.Event
	if len(r.Open) >= maxOpen {
		events = append(events, r.close(r.Open[0], conversation.Aborted, at))
	}
	r.Open = append(r.Open, o)
	return append(events, event(conversation.EventBlockStart, conversation.BlockStart{Block: o.Block}, at))
}

// close completes an open block with what it has.
func (r *recorder) close(o *openBlock, status conversation.BlockStatus, at time.Time) conversation.Event {
	if len(o.Text) > 0 {
		o.Block.Content = string(o.Text)
	}
	o.Block.Status = status
	return r.settle(o.Block, at)
}

// settle completes a block, open or not.
func (r *recorder) settle(b conversation.Block, at time.Time) conversation.Event {
	r.Open = slices.DeleteFunc(r.Open, func(o *openBlock) bool { return o.Block.ID == b.ID })
	return event(conversation.EventBlockComplete, conversation.BlockComplete{Block: b}, at)
}

// cut closes everything, as aborted.
func (r *recorder) cut(at time.Time) []conversation.Event {
	var events []conversation.Event
	for _, o := range slices.Clone(r.Open) {
		events = append(events, r.close(o, conversation.Aborted, at))
	}
	return events
}

// closeText completes the text that streams, if any does.
func (r *recorder) closeText(at time.Time) []conversation.Event {
	if o := r.text(); o != nil {
		return []conversation.Event{r.close(o, conversation.Complete, at)}
	}
	return nil
}

// update reads an update. It reports whether it made sense.
func (r *recorder) update(u update, at time.Time) ([]conversation.Event, bool) {
	switch u.Kind {
	case updateText:
		return r.chunk(conversation.AssistantText, u, at), true
	case updateThought:
		return r.chunk(conversation.Thinking, u, at), true
	case updateCall, updateCallMore:
		if u.ID == "" {
			return nil, false
		}
		return r.call(u, false, at), true
	case updatePlan:
		return append(r.closeText(at), r.plan(u.Entries, at)...), true
	case updateUser, updateUsage, "available_commands_update", "current_mode_update", "session_info_update", "config_option_update":
		return nil, true
	}
	return nil, false
}

// chunk shows a piece of the model's output. A text continues until something else follows.
func (r *recorder) chunk(kind conversation.BlockType, u update, at time.Time) []conversation.Event {
	words := Words(u.Content)
	if words == "" {
		return nil
	}
	var events []conversation.Event
	o := r.text()
	if o != nil && (o.Block.Type != kind || o.MessageID != u.MessageID) {
		events, o = append(events, r.close(o, conversation.Complete, at)), nil
	}
	if o == nil {
		o = &openBlock{MessageID: u.MessageID, Block: conversation.Block{
			ID: fmt.Sprintf("%s/%d", r.Prefix, r.Texts), Type: kind, Status: conversation.Streaming, CreatedAt: at,
		}}
		r.Texts++
		events = append(events, r.start(o, at)...)
	}
	if !o.Cut {
		o.Text = conversation.AppendText(o.Text, words)
	}
	return append(events, event(conversation.EventTextDelta, conversation.TextDelta{BlockID: o.Block.ID, Delta: words}, at))
}

// call reads an update of a call; asked means that it waits for permission.
func (r *recorder) call(u update, asked bool, at time.Time) []conversation.Event {
	events := r.closeText(at)
	o := r.find(u.ID)
	if o == nil {
		o = &openBlock{Block: conversation.Block{
			ID: u.ID, Type: conversation.ToolUse, Status: conversation.Pending, CreatedAt: at, Name: u.name(), ToolUseID: u.ID,
			Input: u.input(),
		}}
		r.Calls++
		events = append(events, r.start(o, at)...)
	}
	var changed conversation.Updates
	if name := u.name(); u.Meta != nil && name != o.Block.Name && name != "" {
		o.Block.Name, changed.Name = name, name
	}
	// A question may show its call in other words, for people.
	if hasFields(u.Input) && (!asked || !o.Given) {
		if string(u.Input) != string(o.Block.Input) {
			o.Block.Input, changed.Input = u.Input, u.Input
		}
		o.Given = !asked
	}
	if o.Block.Status == conversation.Pending && !asked && (u.Status == "in_progress" || u.Kind == updateCall && u.Status != "pending") {
		o.Block.Status, changed.Status = conversation.Running, conversation.Running
	}
	if changed.Status != "" || changed.Name != "" || changed.Input != nil {
		events = append(events, event(conversation.EventBlockUpdate, conversation.BlockUpdate{BlockID: o.Block.ID, Updates: changed}, at))
	}
	if len(u.Content) > 0 && string(u.Content) != "null" && string(u.Content) != "[]" {
		o.Shown = u.Content
	}
	if hasFields(u.Output) {
		o.Output = u.Output
	}
	switch u.Status {
	case "completed":
		return append(events, r.ended(o, conversation.Success, at)...)
	case "failed":
		return append(events, r.ended(o, conversation.Failed, at)...)
	}
	return events
}

// ended shows the end of a call, and its result.
func (r *recorder) ended(o *openBlock, status conversation.BlockStatus, at time.Time) []conversation.Event {
	if r.Interrupted {
		status = conversation.Aborted
	}
	result := conversation.Block{
		ID: o.Block.ID + "/result", Type: conversation.ToolResult, Status: conversation.Running, CreatedAt: at, ToolUseID: o.Block.ID,
	}
	head := event(conversation.EventBlockStart, conversation.BlockStart{Block: result}, at)
	result.Status, result.Output, result.IsError = status, output(o.Output, o.Shown), status == conversation.Failed
	return []conversation.Event{r.close(o, status, at), head, event(conversation.EventBlockComplete, conversation.BlockComplete{Block: result}, at)}
}

var word = lazyregexp.New(`^[A-Za-z0-9_.:-]+$`)

// name is what the tool is called, as far as the agent says so: it need not.
func (c toolCall) name() string {
	var meta map[string]struct {
		ToolName string `json:"toolName"`
	}
	if Decode(c.Meta, &meta) {
		for _, m := range meta {
			if m.ToolName != "" {
				return m.ToolName
			}
		}
	}
	switch {
	case word.MatchString(c.Title):
		return c.Title
	case c.ToolKind != "":
		return c.ToolKind
	}
	return c.Title
}

// input is what the tool is called with, or what the agent says about that.
func (c toolCall) input() json.RawMessage {
	if hasFields(c.Input) {
		return c.Input
	}
	if c.Title == "" {
		return nil
	}
	return encode(struct {
		Title     string          `json:"title"`
		Locations json.RawMessage `json:"locations,omitempty"`
	}{c.Title, c.Locations})
}

// plan shows the agent's plan. A turn has one, in its present state.
func (r *recorder) plan(entries []planEntry, at time.Time) []conversation.Event {
	if len(entries) == 0 {
		return nil
	}
	var said []string
	for _, e := range entries {
		mark := "[ ] "
		switch e.Status {
		case "in_progress":
			mark = "[~] "
		case "completed":
			mark = "[x] "
		}
		said = append(said, mark+e.Content)
	}
	return whole(conversation.Block{
		ID: r.Prefix + "/plan", Type: conversation.System, Status: conversation.Complete, CreatedAt: at,
		Subtype: "plan", Message: strings.Join(said, "\n"),
	}, at)
}

// hasFields reports whether raw says anything.
func hasFields(raw json.RawMessage) bool {
	s := string(raw)
	return s != "" && s != "null" && s != "{}"
}

func event(kind conversation.EventType, data any, at time.Time) conversation.Event {
	return conversation.Event{Type: kind, ConversationID: conversation.Main, At: at, Data: data}
}
