package acpformat

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
)

// Recorder makes blocks of what an agent says of its work. The bridge keeps one to write the
// transcript, a translator has one to show what streams.
type Recorder struct {
	// Prefix begins the ids of text, for which the agent has none; Texts counts it.
	Prefix string       `json:"prefix,omitempty"`
	Texts  int          `json:"texts,omitempty"`
	Open   []*OpenBlock `json:"open,omitempty"` // in the order they were opened
	// Calls counts the calls of tools.
	Calls int64 `json:"calls,omitempty"`
	// Interrupted: whatever ends from now on was aborted.
	Interrupted bool `json:"interrupted,omitempty"`
}

// OpenBlock is a block that has begun and not ended.
type OpenBlock struct {
	Block     conversation.Block `json:"block"`
	Text      []byte             `json:"text,omitempty"` // deltas so far; the block's content is empty meanwhile
	MessageID string             `json:"messageId,omitempty"`
	Shown     json.RawMessage    `json:"shown,omitempty"` // what a call has brought so far
	Output    json.RawMessage    `json:"output,omitempty"`
	Given     bool               `json:"given,omitempty"` // the agent has reported the call's input
	Cut       bool               `json:"cut,omitempty"`   // there was more text than a state may have
}

// MaxOpen is how many blocks are open at once, at most.
const MaxOpen = 64

// Find returns the open block with the id, the newest first; nil if there is none.
func (r *Recorder) Find(id string) *OpenBlock {
	for _, o := range slices.Backward(r.Open) {
		if o.Block.ID == id {
			return o
		}
	}
	return nil
}

// text is the text that streams, or nil.
func (r *Recorder) text() *OpenBlock {
	for _, o := range r.Open {
		if o.Block.Type == conversation.AssistantText || o.Block.Type == conversation.Thinking {
			return o
		}
	}
	return nil
}

// Start opens a block. Where too many are open, the oldest is closed as aborted.
func (r *Recorder) Start(o *OpenBlock, at time.Time) []conversation.Event {
	var events []conversation.Event
	if len(r.Open) >= MaxOpen {
		events = append(events, r.close(r.Open[0], conversation.Aborted, at))
	}
	r.Open = append(r.Open, o)
	return append(events, Event(conversation.EventBlockStart, conversation.BlockStart{Block: o.Block}, at))
}

// close completes an open block with what it has.
func (r *Recorder) close(o *OpenBlock, status conversation.BlockStatus, at time.Time) conversation.Event {
	if len(o.Text) > 0 {
		o.Block.Content = string(o.Text)
	}
	o.Block.Status = status
	return r.Settle(o.Block, at)
}

// Settle completes a block, open or not.
func (r *Recorder) Settle(b conversation.Block, at time.Time) conversation.Event {
	r.Open = slices.DeleteFunc(r.Open, func(o *OpenBlock) bool { return o.Block.ID == b.ID })
	return Event(conversation.EventBlockComplete, conversation.BlockComplete{Block: b}, at)
}

// Cut closes everything, as aborted.
func (r *Recorder) Cut(at time.Time) []conversation.Event {
	var events []conversation.Event
	for _, o := range slices.Clone(r.Open) {
		events = append(events, r.close(o, conversation.Aborted, at))
	}
	return events
}

// CloseText completes the text that streams, if any does.
func (r *Recorder) CloseText(at time.Time) []conversation.Event {
	if o := r.text(); o != nil {
		return []conversation.Event{r.close(o, conversation.Complete, at)}
	}
	return nil
}

// Update reads an update. It reports whether it made sense.
func (r *Recorder) Update(u update, at time.Time) ([]conversation.Event, bool) {
	switch u.Kind {
	case UpdateText:
		return r.chunk(conversation.AssistantText, u, at), true
	case UpdateThought:
		return r.chunk(conversation.Thinking, u, at), true
	case updateCall, updateCallMore:
		if u.ID == "" {
			return nil, false
		}
		return r.Call(u, false, at), true
	case updatePlan:
		return append(r.CloseText(at), r.plan(u.Entries, at)...), true
	case UpdateUser, updateUsage, "available_commands_update", "current_mode_update", "session_info_update", "config_option_update":
		return nil, true
	}
	return nil, false
}

// chunk shows a piece of the model's output. A text continues until something else follows.
func (r *Recorder) chunk(kind conversation.BlockType, u update, at time.Time) []conversation.Event {
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
		o = &OpenBlock{MessageID: u.MessageID, Block: conversation.Block{
			ID: fmt.Sprintf("%s/%d", r.Prefix, r.Texts), Type: kind, Status: conversation.Streaming, CreatedAt: at,
		}}
		r.Texts++
		events = append(events, r.Start(o, at)...)
	}
	if !o.Cut {
		o.Text = conversation.AppendText(o.Text, words)
	}
	return append(events, Event(conversation.EventTextDelta, conversation.TextDelta{BlockID: o.Block.ID, Delta: words}, at))
}

// Call reads an update of a call; asked means that it waits for permission.
func (r *Recorder) Call(u update, asked bool, at time.Time) []conversation.Event {
	events := r.CloseText(at)
	o := r.Find(u.ID)
	if o == nil {
		o = &OpenBlock{Block: conversation.Block{
			ID: u.ID, Type: conversation.ToolUse, Status: conversation.Pending, CreatedAt: at, Name: u.Name(), ToolUseID: u.ID,
			Input: u.CalledWith(),
		}}
		r.Calls++
		events = append(events, r.Start(o, at)...)
	}
	var changed conversation.Updates
	if name := u.Name(); u.Meta != nil && name != o.Block.Name && name != "" {
		o.Block.Name, changed.Name = name, name
	}
	// A question may show its call in other words, for people.
	if HasFields(u.Input) && (!asked || !o.Given) {
		if string(u.Input) != string(o.Block.Input) {
			o.Block.Input, changed.Input = u.Input, u.Input
		}
		o.Given = !asked
	}
	if o.Block.Status == conversation.Pending && !asked && (u.Status == "in_progress" || u.Kind == updateCall && u.Status != "pending") {
		o.Block.Status, changed.Status = conversation.Running, conversation.Running
	}
	if changed.Status != "" || changed.Name != "" || changed.Input != nil {
		events = append(events, Event(conversation.EventBlockUpdate, conversation.BlockUpdate{BlockID: o.Block.ID, Updates: changed}, at))
	}
	if len(u.Content) > 0 && string(u.Content) != "null" && string(u.Content) != "[]" {
		o.Shown = u.Content
	}
	if HasFields(u.Output) {
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
func (r *Recorder) ended(o *OpenBlock, status conversation.BlockStatus, at time.Time) []conversation.Event {
	if r.Interrupted {
		status = conversation.Aborted
	}
	result := conversation.Block{
		ID: o.Block.ID + "/result", Type: conversation.ToolResult, Status: conversation.Running, CreatedAt: at, ToolUseID: o.Block.ID,
	}
	head := Event(conversation.EventBlockStart, conversation.BlockStart{Block: result}, at)
	result.Status, result.Output, result.IsError = status, output(o.Output, o.Shown), status == conversation.Failed
	return []conversation.Event{r.close(o, status, at), head, Event(conversation.EventBlockComplete, conversation.BlockComplete{Block: result}, at)}
}

var word = lazyregexp.New(`^[A-Za-z0-9_.:-]+$`)

// Name is what the tool is called, as far as the agent says so: it need not.
func (c toolCall) Name() string {
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

// CalledWith is what the tool is called with, or what the agent says about that.
func (c toolCall) CalledWith() json.RawMessage {
	if HasFields(c.Input) {
		return c.Input
	}
	if c.Title == "" {
		return nil
	}
	return Encode(struct {
		Title     string          `json:"title"`
		Locations json.RawMessage `json:"locations,omitempty"`
	}{c.Title, c.Locations})
}

// plan shows the agent's plan. A turn has one, in its present state.
func (r *Recorder) plan(entries []planEntry, at time.Time) []conversation.Event {
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
	return Whole(conversation.Block{
		ID: r.Prefix + "/plan", Type: conversation.System, Status: conversation.Complete, CreatedAt: at,
		Subtype: "plan", Message: strings.Join(said, "\n"),
	}, at)
}

// HasFields reports whether raw says anything.
func HasFields(raw json.RawMessage) bool {
	s := string(raw)
	return s != "" && s != "null" && s != "{}"
}

// Event returns an event of the main conversation.
func Event(kind conversation.EventType, data any, at time.Time) conversation.Event {
	return conversation.Event{Type: kind, ConversationID: conversation.Main, At: at, Data: data}
}
