package codex

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// maxRaw bounds what is kept of a line that was not understood, and of the report of a crash.
const maxRaw = 1 << 10

// reader makes blocks of items. Translator and parser share it, so that both make the same.
type reader struct {
	ledger
	Root      string         `json:"root,omitempty"` // the main conversation's thread
	Thoughts  []thought      `json:"thoughts,omitempty"`
	Retries   map[string]int `json:"retries,omitempty"` // by turn
	ToolCalls int64          `json:"toolCalls,omitempty"`
}

// thought is thinking that has begun and has no words yet; often it never has.
type thought struct {
	ID      string    `json:"id"`
	Turn    string    `json:"turn"`
	Created time.Time `json:"created"`
}

// place says where in the session something is said.
type place struct {
	thread, turn string
	at           time.Time // of the frame or the line
}

// conversation is the conversation of a thread.
func (r *reader) conversation(thread string) string {
	if thread == r.Root || thread == "" {
		return conversation.Main
	}
	return thread
}

// created is the time of an item's block.
func (p place) created(ms int64) time.Time {
	if ms == 0 {
		return p.at
	}
	return time.UnixMilli(ms).UTC()
}

// begin reads that an item has begun.
func (r *reader) begin(p place, it item) []conversation.Event {
	where := r.conversation(p.thread)
	if r.find(where, it.id) != nil {
		return nil
	}
	b := conversation.Block{ID: it.id, Status: conversation.Streaming, CreatedAt: p.created(it.started)}
	switch it.kind {
	case kindUser:
		return nil // it is whole at once
	case kindText, kindPlan:
		b.Type = conversation.AssistantText
	case kindThinking:
		r.Thoughts = append(r.Thoughts[max(0, len(r.Thoughts)-maxBlocks):], thought{ID: it.id, Turn: p.turn, Created: b.CreatedAt})
		return nil
	case kindCompaction:
		b.Type, b.Subtype, b.Message = conversation.System, "compaction", compacted
	case kindSubagent:
		if it.status != "started" {
			return nil
		}
		return r.call(p, it)
	default:
		return r.call(p, it)
	}
	return r.start(&openBlock{Conversation: where, Turn: p.turn, Block: b}, p.at)
}

const compacted = "The conversation was compacted."

// call opens the block of a call.
func (r *reader) call(p place, it item) []conversation.Event {
	r.ToolCalls++
	o := &openBlock{Conversation: r.conversation(p.thread), Turn: p.turn, Block: conversation.Block{
		ID: it.id, Type: conversation.ToolUse, Status: conversation.Pending, CreatedAt: p.created(it.started),
		Name: it.name, ToolUseID: it.id,
	}}
	if it.subagent() {
		o.Block.Type, o.Block.ToolUseID = conversation.Subagent, ""
	}
	return append(r.start(o, p.at), o.running(conversation.Updates{Input: it.input, SubagentID: it.child}, p.at))
}

// say reads more of a message or of thinking. Part numbers the parts of a summary.
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
		o = &openBlock{Conversation: where, Turn: p.turn, Part: part, Block: conversation.Block{
			ID: id, Type: conversation.Thinking, Status: conversation.Streaming, CreatedAt: t.Created,
		}}
		events = append(events, r.start(o, p.at)...)
	}
	if o.Block.Type != conversation.AssistantText && o.Block.Type != conversation.Thinking {
		return nil
	}
	if part != o.Part {
		o.Part = part
		words = paragraph + words
	}
	return append(events, o.delta(words, p.at))
}

// thought takes thinking from those that have no words.
func (r *reader) thought(id string) *thought {
	i := slices.IndexFunc(r.Thoughts, func(t thought) bool { return t.ID == id })
	if i < 0 {
		return nil
	}
	t := r.Thoughts[i]
	r.Thoughts = slices.Delete(r.Thoughts, i, i+1)
	return &t
}

// finish reads that an item has ended. It may be the first line about it.
func (r *reader) finish(p place, it item) []conversation.Event {
	where := r.conversation(p.thread)
	b := conversation.Block{ID: it.id, Status: conversation.Complete, CreatedAt: p.created(it.started)}
	switch it.kind {
	case kindUser:
		b.Type, b.Content = conversation.UserMessage, it.text
		_, b.PromptID, b.Author = parseClientID(it.client)
		return whole(where, b, p.at)
	case kindText, kindPlan:
		b.Type, b.Content = conversation.AssistantText, it.text
	case kindThinking:
		b.Type, b.Content = conversation.Thinking, it.text
		if t := r.thought(it.id); t != nil {
			b.CreatedAt = t.Created
		}
		if it.text == "" && r.find(where, it.id) == nil {
			return nil
		}
	case kindCompaction:
		b.Type, b.Subtype, b.Message = conversation.System, "compaction", compacted
	case kindSubagent:
		if it.status != "started" {
			return nil
		}
		return r.called(p, it)
	default:
		return r.called(p, it)
	}
	o := r.find(where, it.id)
	if o == nil {
		return whole(where, b, p.at)
	}
	r.forget(o)
	b.CreatedAt = o.Block.CreatedAt
	return []conversation.Event{complete(where, b, p.at)}
}

// called reads that a call has ended: a tool's with its result. A subagent works on until its
// thread has ended its turn.
func (r *reader) called(p place, it item) []conversation.Event {
	where := r.conversation(p.thread)
	var events []conversation.Event
	o := r.find(where, it.id)
	if o == nil {
		events = r.call(p, it)
		o = r.find(where, it.id)
	}
	status := it.outcome()
	if it.subagent() {
		if it.kind == kindCollab && (status != conversation.Success || it.child == "") {
			if status == conversation.Success {
				status = conversation.Failed
			}
			return append(events, r.close(o, status, p.at))
		}
		if o.Block.SubagentID != it.child {
			events = append(events, o.running(conversation.Updates{SubagentID: it.child}, p.at))
		}
		return events
	}
	r.forget(o)
	b := o.Block
	b.Status = status
	if len(it.input) > 0 {
		b.Input = it.input
	}
	events = append(events, complete(where, b, p.at))
	output, err := json.Marshal(it.output)
	if err != nil {
		output = []byte(`""`) // a string always encodes
	}
	return append(events, whole(where, conversation.Block{
		ID: it.id + "/result", Type: conversation.ToolResult, Status: status, CreatedAt: p.created(it.completed),
		ToolUseID: it.id, Output: output, IsError: status == conversation.Failed,
	}, p.at)...)
}

// retry reads that a request to the model has failed and is sent again. What the model was writing
// is removed.
func (r *reader) retry(p place, message string, ms int64) []conversation.Event {
	events := r.void(p)
	if r.Retries == nil {
		r.Retries = map[string]int{}
	}
	r.Retries[p.turn]++
	return append(events, whole(r.conversation(p.thread), conversation.Block{
		ID: p.turn + "/retry/" + strconv.Itoa(r.Retries[p.turn]), Type: conversation.System, Status: conversation.Complete,
		CreatedAt: p.created(ms), Subtype: "retry", Message: message,
	}, p.at)...)
}

// void removes what a model was writing in a turn.
func (r *reader) void(p place) []conversation.Event {
	var events []conversation.Event
	for _, o := range slices.Clone(r.Open) {
		writing := o.Block.Type == conversation.AssistantText || o.Block.Type == conversation.Thinking
		if o.Turn == p.turn && writing {
			events = append(events, r.remove(o, p.at))
		}
	}
	return events
}

// verdict is how a turn ended.
type verdict struct {
	status  string // completed, interrupted or failed
	message string // of a failure
	ms      int64  // when it ended
}

// over handles the end of a turn. What it leaves open is closed; subagents continue by themselves.
func (r *reader) over(p place, v verdict) []conversation.Event {
	where := r.conversation(p.thread)
	var events []conversation.Event
	if v.status == failed {
		events = r.void(p)
	}
	r.Thoughts = slices.DeleteFunc(r.Thoughts, func(t thought) bool { return t.Turn == p.turn })
	for _, o := range slices.Backward(slices.Clone(r.Open)) {
		if o.Turn != p.turn || o.Conversation != where || (o.Block.Type == conversation.Subagent && o.Block.SubagentID != "") {
			continue
		}
		status := conversation.Aborted
		switch {
		case o.wordless():
			events = append(events, r.remove(o, p.at))
			continue
		case o.Block.Type == conversation.System:
			status = conversation.Complete
		case o.Block.Type == conversation.ToolUse && v.status == completed:
			status = conversation.Success // it works on in the background
		}
		events = append(events, r.close(o, status, p.at))
	}
	if v.status == failed {
		events = append(events, whole(where, conversation.Block{
			ID: p.turn + "/error", Type: conversation.System, Status: conversation.Complete,
			CreatedAt: p.created(v.ms), Subtype: "error", Message: v.message,
		}, p.at)...)
	}
	delete(r.Retries, p.turn)
	return append(events, r.leave(p, v)...)
}

// leave closes the block of the subagent whose turn has ended.
func (r *reader) leave(p place, v verdict) []conversation.Event {
	for _, o := range r.Open {
		if o.Block.Type == conversation.Subagent && o.Block.SubagentID == p.thread {
			return []conversation.Event{r.close(o, v.block(), p.at)}
		}
	}
	return nil
}

// block is the state of a block that a turn stands for.
func (v verdict) block() conversation.BlockStatus {
	switch v.status {
	case completed:
		return conversation.Success
	case failed:
		return conversation.Failed
	}
	return conversation.Aborted
}

// cut closes what is open, the innermost first: a subagent ends before its block.
func (r *reader) cut(at time.Time) []conversation.Event {
	var events []conversation.Event
	for len(r.Open) > 0 {
		o := r.Open[len(r.Open)-1]
		if o.wordless() {
			events = append(events, r.remove(o, at))
			continue
		}
		status := conversation.Aborted
		if o.Block.Type == conversation.System {
			status = conversation.Complete
		}
		events = append(events, r.close(o, status, at))
	}
	r.Thoughts = nil
	return events
}

// problem is an error as stream and rollout have it, in words.
func problem(raw []byte) string {
	var e struct {
		Message string `json:"message"`
		Details string `json:"additionalDetails"`
	}
	if !lenient(raw, &e) {
		return ""
	}
	// A refusal of the API is passed on as its JSON.
	var refusal struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if lenient([]byte(e.Message), &refusal) && refusal.Error.Message != "" {
		e.Message = refusal.Error.Message
	}
	if e.Details != "" {
		e.Message += ": " + e.Details
	}
	return bounded(e.Message)
}

func bounded(s string) string {
	if len(s) > maxRaw {
		s = strings.ToValidUTF8(s[:maxRaw], "") + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
