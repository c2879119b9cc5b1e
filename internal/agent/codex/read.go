package codex

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// reader turns items into blocks. Translator and parser share it, so that both create the same
// blocks.
type reader struct {
	ledger.Ledger[*openBlock]
	Root      string         `json:"root,omitempty"` // the main conversation's thread
	Thoughts  []thought      `json:"thoughts,omitempty"`
	Retries   map[string]int `json:"retries,omitempty"` // by turn
	ToolCalls int64          `json:"toolCalls,omitempty"`
}

// thought is reasoning that has begun and has no text yet. Often it never has any.
type thought struct {
	ID      string    `json:"id"`
	Turn    string    `json:"turn"`
	Created time.Time `json:"created"`
}

// place has the thread, the turn and the time of an event.
type place struct {
	thread, turn string
	at           time.Time // of the frame or the line
}

// conversation returns the conversation of a thread.
func (r *reader) conversation(thread string) string {
	if thread == r.Root || thread == "" {
		return conversation.Main
	}
	return thread
}

// created returns the creation time for an item's block.
func (p place) created(ms int64) time.Time {
	if ms == 0 {
		return p.at
	}
	return time.UnixMilli(ms).UTC()
}

// begin reads the start of an item.
func (r *reader) begin(p place, it codexformat.Item) []conversation.Event {
	where := r.conversation(p.thread)
	if r.find(where, it.ID) != nil {
		return nil
	}
	b := conversation.Block{ID: it.ID, Status: conversation.Streaming, CreatedAt: p.created(it.Started)}
	switch it.Kind {
	case codexformat.KindUser:
		return nil // it completes at once
	case codexformat.KindText, codexformat.KindPlan:
		b.Type = conversation.AssistantText
	case codexformat.KindThinking:
		r.Thoughts = append(r.Thoughts[max(0, len(r.Thoughts)-ledger.Max):], thought{ID: it.ID, Turn: p.turn, Created: b.CreatedAt})
		return nil
	case codexformat.KindCompaction:
		b.Type, b.Subtype, b.Message = conversation.System, "compaction", compacted
	case codexformat.KindSubagent:
		if it.Status != "started" {
			return nil
		}
		return r.call(p, it)
	default:
		return r.call(p, it)
	}
	return r.Start(&openBlock{Turn: p.turn, Entry: ledger.Entry{Conversation: where, Block: b}}, p.at)
}

const compacted = "The conversation was compacted."

// call opens the block of a call.
func (r *reader) call(p place, it codexformat.Item) []conversation.Event {
	r.ToolCalls++
	o := &openBlock{Turn: p.turn, Entry: ledger.Entry{Conversation: r.conversation(p.thread), Block: conversation.Block{
		ID: it.ID, Type: conversation.ToolUse, Status: conversation.Pending, CreatedAt: p.created(it.Started),
		Name: it.Name, ToolUseID: it.ID,
	}}}
	if it.Subagent() {
		o.Block.Type, o.Block.ToolUseID = conversation.Subagent, ""
	}
	return append(r.Start(o, p.at), o.running(conversation.Updates{Input: it.Input, SubagentID: it.Child}, r.room(o), p.at))
}

// say adds text to a message or to reasoning. part is the index of the summary part.
func (r *reader) say(p place, id, words string, part int) []conversation.Event {
	if words == "" {
		return nil
	}
	where := r.conversation(p.thread)
	var events []conversation.Event
	o := r.find(where, id)
	if o == nil {
		t := r.thought(id)
		if t == nil {
			return nil
		}
		o = &openBlock{Turn: p.turn, Part: part, Entry: ledger.Entry{Conversation: where, Block: conversation.Block{
			ID: id, Type: conversation.Thinking, Status: conversation.Streaming, CreatedAt: t.Created,
		}}}
		events = append(events, r.Start(o, p.at)...)
	}
	if o.Block.Type != conversation.AssistantText && o.Block.Type != conversation.Thinking {
		return nil
	}
	if part != o.Part {
		o.Part = part
		words = codexformat.Paragraph + words
	}
	return append(events, o.delta(words, r.room(o), p.at))
}

// thought removes and returns the reasoning with that id from those without text, or returns nil.
func (r *reader) thought(id string) *thought {
	i := slices.IndexFunc(r.Thoughts, func(t thought) bool { return t.ID == id })
	if i < 0 {
		return nil
	}
	t := r.Thoughts[i]
	r.Thoughts = slices.Delete(r.Thoughts, i, i+1)
	return &t
}

// finish reads the end of an item. It may be the first line about the item.
func (r *reader) finish(p place, it codexformat.Item) []conversation.Event {
	where := r.conversation(p.thread)
	b := conversation.Block{ID: it.ID, Status: conversation.Complete, CreatedAt: p.created(it.Started)}
	switch it.Kind {
	case codexformat.KindUser:
		b.Type, b.Content = conversation.UserMessage, it.Text
		_, b.PromptID, b.Author = codexformat.ParseClientID(it.Client)
		return ledger.Whole(where, b, p.at)
	case codexformat.KindText, codexformat.KindPlan:
		b.Type, b.Content = conversation.AssistantText, it.Text
	case codexformat.KindThinking:
		b.Type, b.Content = conversation.Thinking, it.Text
		if t := r.thought(it.ID); t != nil {
			b.CreatedAt = t.Created
		}
		if it.Text == "" && r.find(where, it.ID) == nil {
			return nil
		}
	case codexformat.KindCompaction:
		b.Type, b.Subtype, b.Message = conversation.System, "compaction", compacted
	case codexformat.KindSubagent:
		if it.Status != "started" {
			return nil
		}
		return r.called(p, it)
	default:
		return r.called(p, it)
	}
	o := r.find(where, it.ID)
	if o == nil {
		return ledger.Whole(where, b, p.at)
	}
	b.CreatedAt = o.Block.CreatedAt
	return []conversation.Event{r.Settle(o, b, p.at)}
}

// called reads the end of a call; that of a tool includes its result. A subagent continues until
// its thread has ended its turn.
func (r *reader) called(p place, it codexformat.Item) []conversation.Event {
	where := r.conversation(p.thread)
	var events []conversation.Event
	o := r.find(where, it.ID)
	if o == nil {
		events = r.call(p, it)
		o = r.find(where, it.ID)
	}
	status := it.Outcome()
	if it.Subagent() {
		if it.Kind == codexformat.KindCollab && (status != conversation.Success || it.Child == "") {
			if status == conversation.Success {
				status = conversation.Failed
			}
			return append(events, r.Close(o, status, p.at))
		}
		if o.Block.SubagentID != it.Child {
			events = append(events, o.running(conversation.Updates{SubagentID: it.Child}, r.room(o), p.at))
		}
		return events
	}
	b := o.Block
	b.Status = status
	if len(it.Input) > 0 {
		b.Input = it.Input
	}
	events = append(events, r.Settle(o, b, p.at))
	output, err := json.Marshal(it.Output)
	if err != nil {
		output = []byte(`""`) // a string can always be encoded
	}
	return append(events, ledger.Whole(where, conversation.Block{
		ID: it.ID + "/result", Type: conversation.ToolResult, Status: status, CreatedAt: p.created(it.Completed),
		ToolUseID: it.ID, Output: output, IsError: status == conversation.Failed, Images: conversation.References(it.Images),
	}, p.at)...)
}

// retry reads the report that a request to the model has failed and is being retried. The model's
// partial output is removed.
func (r *reader) retry(p place, message string, ms int64) []conversation.Event {
	events := r.discard(p)
	if r.Retries == nil {
		r.Retries = map[string]int{}
	}
	r.Retries[p.turn]++
	return append(events, ledger.Whole(r.conversation(p.thread), conversation.Block{
		ID: p.turn + "/retry/" + strconv.Itoa(r.Retries[p.turn]), Type: conversation.System, Status: conversation.Complete,
		CreatedAt: p.created(ms), Subtype: "retry", Message: message,
	}, p.at)...)
}

// discard removes the blocks that a model was writing in a turn.
func (r *reader) discard(p place) []conversation.Event {
	var events []conversation.Event
	for _, o := range slices.Clone(r.Open) {
		writing := o.Block.Type == conversation.AssistantText || o.Block.Type == conversation.Thinking
		if o.Turn == p.turn && writing {
			events = append(events, r.Remove(o, p.at))
		}
	}
	return events
}

// endTurn handles the end of a turn. It closes the turn's open blocks; subagents continue by
// themselves.
func (r *reader) endTurn(p place, v codexformat.Verdict) []conversation.Event {
	where := r.conversation(p.thread)
	var events []conversation.Event
	if v.Status == codexformat.Failed {
		events = r.discard(p)
	}
	r.Thoughts = slices.DeleteFunc(r.Thoughts, func(t thought) bool { return t.Turn == p.turn })
	for _, o := range slices.Backward(slices.Clone(r.Open)) {
		if o.Turn != p.turn || o.Conversation != where || (o.Block.Type == conversation.Subagent && o.Block.SubagentID != "") {
			continue
		}
		status := conversation.Aborted
		switch {
		case o.withoutText():
			events = append(events, r.Remove(o, p.at))
			continue
		case o.Block.Type == conversation.System:
			status = conversation.Complete
		case o.Block.Type == conversation.ToolUse && v.Status == codexformat.Completed:
			status = conversation.Success // it continues in the background
		}
		events = append(events, r.Close(o, status, p.at))
	}
	if v.Status == codexformat.Failed {
		events = append(events, ledger.Whole(where, conversation.Block{
			ID: p.turn + "/error", Type: conversation.System, Status: conversation.Complete,
			CreatedAt: p.created(v.MS), Subtype: "error", Message: v.Message,
		}, p.at)...)
	}
	delete(r.Retries, p.turn)
	return append(events, r.leave(p, v)...)
}

// leave closes the block of a subagent whose turn has ended.
func (r *reader) leave(p place, v codexformat.Verdict) []conversation.Event {
	for _, o := range r.Open {
		if o.Block.Type == conversation.Subagent && o.Block.SubagentID == p.thread {
			return []conversation.Event{r.Close(o, v.Block(), p.at)}
		}
	}
	return nil
}

// Cut aborts the open blocks, innermost first: a subagent ends before its block.
func (r *reader) Cut(at time.Time) []conversation.Event {
	var events []conversation.Event
	for len(r.Open) > 0 {
		o := r.Open[len(r.Open)-1]
		if o.withoutText() {
			events = append(events, r.Remove(o, at))
			continue
		}
		status := conversation.Aborted
		if o.Block.Type == conversation.System {
			status = conversation.Complete
		}
		events = append(events, r.Close(o, status, at))
	}
	r.Thoughts = nil
	return events
}
