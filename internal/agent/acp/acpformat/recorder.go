package acpformat

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
)

// Recorder turns an agent's updates into blocks. The bridge uses one to write the transcript, the
// translator one to show streamed text.
type Recorder struct {
	// Prefix is the prefix of the ids of text blocks, to which the agent assigns no ids. Texts
	// counts them.
	Prefix string `json:"prefix,omitempty"`
	Texts  int    `json:"texts,omitempty"`
	ledger.Ledger[*OpenBlock]
	// Calls counts the tool calls.
	Calls int64 `json:"calls,omitempty"`
	// Interrupted is set after an interrupt: blocks that end afterwards are aborted.
	Interrupted bool `json:"interrupted,omitempty"`
}

// OpenBlock is a block that has not ended.
type OpenBlock struct {
	ledger.Entry
	MessageID string          `json:"messageId,omitempty"`
	Shown     json.RawMessage `json:"shown,omitempty"` // content of the call so far
	Output    json.RawMessage `json:"output,omitempty"`
	Given     bool            `json:"given,omitempty"` // the agent has reported the call's input
	Cut       bool            `json:"cut,omitempty"`   // Text was truncated to fit into a state
}

// text returns the text block that is streaming, or nil.
func (r *Recorder) text() *OpenBlock {
	for _, o := range r.Open {
		if o.Block.Type == conversation.AssistantText || o.Block.Type == conversation.Thinking {
			return o
		}
	}
	return nil
}

// CloseText completes the text block that is streaming, if any.
func (r *Recorder) CloseText(at time.Time) []conversation.Event {
	if o := r.text(); o != nil {
		return []conversation.Event{r.Close(o, conversation.Complete, at)}
	}
	return nil
}

// Update applies an update. It reports whether the update was understood.
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

// chunk adds a piece of the model's output. A text block continues until an update of another kind
// follows.
func (r *Recorder) chunk(kind conversation.BlockType, u update, at time.Time) []conversation.Event {
	words := Words(u.Content)
	if words == "" {
		return nil
	}
	var events []conversation.Event
	o := r.text()
	if o != nil && (o.Block.Type != kind || o.MessageID != u.MessageID) {
		events, o = append(events, r.Close(o, conversation.Complete, at)), nil
	}
	if o == nil {
		o = &OpenBlock{MessageID: u.MessageID, Entry: ledger.Entry{Block: conversation.Block{
			ID: fmt.Sprintf("%s/%d", r.Prefix, r.Texts), Type: kind, Status: conversation.Streaming, CreatedAt: at,
		}}}
		r.Texts++
		events = append(events, r.Start(o, at)...)
	}
	if !o.Cut {
		o.Text = conversation.AppendText(o.Text, words)
	}
	return append(events, o.Delta(words, at))
}

// Call applies an update of a tool call. asked means that the call waits for permission.
func (r *Recorder) Call(u update, asked bool, at time.Time) []conversation.Event {
	events := r.CloseText(at)
	o := r.Find(u.ID)
	if o == nil {
		o = &OpenBlock{Entry: ledger.Entry{Block: conversation.Block{
			ID: u.ID, Type: conversation.ToolUse, Status: conversation.Pending, CreatedAt: at, Name: u.Name(), ToolUseID: u.ID,
			Input: u.CalledWith(), Tool: conversation.Tool{Kind: u.kind()},
		}}}
		r.Calls++
		events = append(events, r.Start(o, at)...)
	}
	if kind := u.kind(); kind != "" {
		o.Block.Kind = kind
	}
	var changed conversation.Updates
	if name := u.Name(); u.Meta != nil && name != o.Block.Name && name != "" {
		o.Block.Name, changed.Name = name, name
	}
	// A permission request may show the input in another form, for people.
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
		events = append(events, o.Updated(changed, at))
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

// ended completes a call and adds its result.
func (r *Recorder) ended(o *OpenBlock, status conversation.BlockStatus, at time.Time) []conversation.Event {
	if r.Interrupted {
		status = conversation.Aborted
	}
	return append([]conversation.Event{r.Close(o, status, at)}, ledger.Whole("", conversation.Block{
		ID: o.Block.ID + "/result", Type: conversation.ToolResult, Status: status, CreatedAt: at, ToolUseID: o.Block.ID,
		Output: output(o.Output, o.Shown), IsError: status == conversation.Failed,
		Images: conversation.References(Images(o.Shown)),
	}, at)...)
}

var word = lazyregexp.New(`^[A-Za-z0-9_.:-]+$`)

// Name returns the name of the tool if the agent reports one. The protocol does not require it.
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

// kinds maps the protocol's kinds of tools to ours.
var kinds = map[string]conversation.ToolKind{
	"read": conversation.ToolRead, "edit": conversation.ToolEdit, "delete": conversation.ToolEdit, "move": conversation.ToolEdit,
	"search": conversation.ToolSearch, "execute": conversation.ToolExecute, "think": conversation.ToolThink, "fetch": conversation.ToolFetch,
}

// kind returns the kind of tool that the agent reports, or "" if it reports no known kind.
func (c toolCall) kind() conversation.ToolKind { return kinds[c.ToolKind] }

// CalledWith returns the input of the call, or else its title and locations.
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

// plan shows the agent's plan. A turn has one plan block, which is updated.
func (r *Recorder) plan(entries []planEntry, at time.Time) []conversation.Event {
	if len(entries) == 0 {
		return nil
	}
	var todos []string
	for _, e := range entries {
		mark := "[ ] "
		switch e.Status {
		case "in_progress":
			mark = "[~] "
		case "completed":
			mark = "[x] "
		}
		todos = append(todos, mark+e.Content)
	}
	return ledger.Whole("", conversation.Block{
		ID: r.Prefix + "/plan", Type: conversation.System, Status: conversation.Complete, CreatedAt: at,
		Subtype: "plan", Message: strings.Join(todos, "\n"),
	}, at)
}

// HasFields reports whether raw is a non-empty value.
func HasFields(raw json.RawMessage) bool {
	s := string(raw)
	return s != "" && s != "null" && s != "{}"
}
