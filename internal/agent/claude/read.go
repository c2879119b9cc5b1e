package claude

import (
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/jsonscan"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// maxRaw bounds how much is kept of an unparsed line, of stderr in a crash's message, and of the
// agent's message for a failure.
const maxRaw = 1 << 10

// maxMark bounds the length of an interrupt mark, to distinguish it from what people write.
const maxMark = 256

// maxGone bounds reader.Gone.
const maxGone = 256

// reader creates the blocks that stream and transcripts have in common, so that both sides create
// the same ones.
type reader struct {
	blocks
	// pictured is called with the images of results; nil if their bytes are not needed.
	pictured func([]conversation.ImageData)
	Writing  string            `json:"writing,omitempty"` // the newest message that the main model streamed
	Part     int               `json:"part,omitempty"`    // number of its parts that have begun
	Of       map[string]string `json:"of,omitempty"`      // newest message by conversation
	Next     map[string]int    `json:"next,omitempty"`    // position of that message's next part
	Agents   []*subagent       `json:"agents,omitempty"`
	Gone     []string          `json:"gone,omitempty"` // ids of subagents that have ended
	// Holding: the message may have more parts. The results of its first parts wait in Held until
	// it is complete. A call runs as soon as it is written, so its result can arrive before the
	// next part; the transcript does not record their order.
	Holding bool                 `json:"holding,omitempty"`
	Held    []conversation.Block `json:"held,omitempty"`
	Current string               `json:"current,omitempty"` // message whose parts the agent reported last
	// Last is the newest permanent block of the main conversation.
	Last      string `json:"last,omitempty"`
	ToolCalls int64  `json:"toolCalls,omitempty"`
}

// subagent is a running subagent.
type subagent struct {
	ID         string `json:"id"`
	ToolUseID  string `json:"toolUseId"`
	Background bool   `json:"background,omitempty"`
	// Prompt is a hash of its prompt, until one of the subagent's own lines has repeated the
	// prompt.
	Prompt uint64 `json:"prompt,omitempty"`
}

// conversationOf returns the conversation to which a line belongs.
func (r *reader) conversationOf(l record) string {
	if len(l.agent) > 2 {
		return jsonscan.Text(l.agent)
	}
	if len(l.parent) > 2 && l.parent[0] == '"' {
		id := jsonscan.Text(l.parent)
		if a := r.agentOf(id); a != nil {
			return a.ID
		}
		return id
	}
	return conversation.Main
}

// agentOf returns the subagent that a call has started, or nil.
func (r *reader) agentOf(toolUseID string) *subagent {
	for _, a := range r.Agents {
		if a.ToolUseID == toolUseID {
			return a
		}
	}
	return nil
}

func (r *reader) kept(where, id string) {
	if where == conversation.Main {
		r.Last = id
	}
}

// show adds a complete block.
func (r *reader) show(where string, b conversation.Block, at time.Time) []conversation.Event {
	if b.Status == "" {
		b.Status = conversation.Complete
	}
	r.kept(where, b.ID)
	return append(r.summarized(where, at), ledger.Whole(where, b, at)...)
}

// add adds a block that is not part of a message, after the held results.
func (r *reader) add(where string, b conversation.Block, at time.Time) []conversation.Event {
	return append(r.release(where, at), r.show(where, b, at)...)
}

// release shows the held results.
func (r *reader) release(where string, at time.Time) []conversation.Event {
	if where != conversation.Main || len(r.Held) == 0 {
		return nil
	}
	var events []conversation.Event
	for _, b := range r.Held {
		events = append(events, r.show(where, b, at)...)
	}
	r.Held = nil
	return events
}

func (r *reader) system(where, id, subtype, words string, l record, at time.Time) []conversation.Event {
	return r.add(where, conversation.Block{
		ID: id, Type: conversation.System, CreatedAt: l.time(at), Subtype: subtype, Message: words,
	}, at)
}

// commandOutput shows the output of a command such as /cost, if it has any.
func (r *reader) commandOutput(where, id, words string, l record, at time.Time) []conversation.Event {
	words = strings.TrimSpace(words)
	if words == "" {
		return nil
	}
	return r.system(where, id, "command_output", words, l, at)
}

// assistant reads one or more complete parts of a model's message.
func (r *reader) assistant(l record, at time.Time) []conversation.Event {
	m := decodeMessage(l.message)
	where := r.conversationOf(l)
	var events []conversation.Event
	if l.apiError || l.localCommand || jsonscan.Is(m.model, "<synthetic>") {
		words := words(m.content)
		switch {
		case l.apiError:
			events = r.discard(where, at)
			return append(events, r.system(where, jsonscan.Text(l.uuid), "error", words, l, at)...)
		case l.localCommand:
			return r.commandOutput(where, jsonscan.Text(l.uuid), words, l, at)
		case words == noReply:
			return nil // sent only to the model, when a session is resumed after a kill
		}
		return r.system(where, jsonscan.Text(l.uuid), "notice", words, l, at)
	}
	if id := jsonscan.Text(m.id); where == conversation.Main && r.Writing != "" && id != "" && id != r.Writing {
		events = r.discard(where, at)
	}
	if where == conversation.Main && r.Writing == "" {
		r.Holding = true // no line marks the end of a message
	}
	if where == conversation.Main && jsonscan.Text(m.id) != r.Current {
		events = append(events, r.release(where, at)...)
		r.Current = jsonscan.Text(m.id)
	}
	n := 0
	jsonscan.Elements(m.content, func(raw []byte) {
		events = append(events, r.part(where, l, m, decodePart(raw), n, at)...)
		n++
	})
	if n == 0 && len(m.content) > 0 && m.content[0] == '"' {
		events = append(events, r.part(where, l, m, part{raw: m.content, kind: []byte(`"text"`), text: m.content}, 0, at)...)
	}
	return events
}

// part reads part n of an assistant line.
func (r *reader) part(where string, l record, m message, p part, n int, at time.Time) []conversation.Event {
	if p.isTool() {
		r.place(where, l, m, n)
		return r.call(where, l, p, at)
	}
	b := conversation.Block{CreatedAt: l.time(at), Status: conversation.Complete}
	switch {
	case jsonscan.Is(p.kind, "text"):
		b.Type, b.Content = conversation.AssistantText, jsonscan.Text(p.text)
		if strings.TrimSpace(b.Content) == "" {
			r.place(where, l, m, n)
			return nil // the agent does not report it
		}
	case jsonscan.Is(p.kind, "thinking"), jsonscan.Is(p.kind, "redacted_thinking"):
		b.Type, b.Content = conversation.Thinking, jsonscan.Text(p.text)
	case p.isResult(): // of a tool that runs on the model's side
		return r.result(where, r.partID(where, l, m, n), l, p, at)
	default:
		b.Type, b.Subtype, b.Message = conversation.System, "unparsed", bounded(p.raw)
	}
	if l.aborted && b.Type != conversation.System {
		b.Status = conversation.Aborted
	}
	if where == conversation.Main && r.Writing != "" {
		if o := r.streamed(m, b.Type); o != nil {
			o.whole(b.Content)
			o.Block.CreatedAt = b.CreatedAt
			r.kept(where, o.Block.ID)
			r.counted(where, m, o.Index+1)
			return []conversation.Event{r.close(o, b.Status, at)}
		}
	}
	b.ID = r.partID(where, l, m, n)
	return r.show(where, b, at)
}

// streamed returns the oldest open block of that type in the message that the model is writing.
func (r *reader) streamed(m message, kind conversation.BlockType) *openBlock {
	id := jsonscan.Text(m.id)
	r.prepare()
	for _, o := range r.writing {
		if o.Message == id && o.Block.Type == kind {
			return o
		}
	}
	return nil
}

// partID returns the id of a block whose part was not streamed. In the main conversation it
// contains the position of the part in its message, which a stream shows first; in others it is the
// line's own.
func (r *reader) partID(where string, l record, m message, n int) string {
	if where != conversation.Main {
		if n == 0 {
			return jsonscan.Text(l.uuid)
		}
		return jsonscan.Text(l.uuid) + "/" + strconv.Itoa(n)
	}
	return partID(jsonscan.Text(m.id), r.place(where, l, m, n))
}

func partID(message string, index int) string { return message + "/" + strconv.Itoa(index) }

// place returns the position, in its message, of the n-th part of an assistant line of the main
// conversation: the index in the line, or that of the part that the model is writing, or that of
// the next part.
func (r *reader) place(where string, l record, m message, n int) int {
	if where != conversation.Main {
		return 0
	}
	id := jsonscan.Text(m.id)
	index, err := strconv.Atoi(string(l.index))
	switch {
	case err == nil:
		index += n
	case r.Part > 0 && r.Writing == id:
		index = r.Part - 1 + n
	case r.Of[where] == id:
		index = r.Next[where]
	default:
		index = 0
	}
	r.counted(where, m, index+1)
	return index
}

func (r *reader) counted(where string, m message, next int) {
	if r.Of == nil {
		r.Of, r.Next = map[string]string{}, map[string]int{}
	}
	r.Of[where], r.Next[where] = jsonscan.Text(m.id), next
}

// call reads a call of a tool or a subagent, with its complete input.
func (r *reader) call(where string, l record, p part, at time.Time) []conversation.Event {
	id := jsonscan.Text(p.id)
	r.ToolCalls++
	r.kept(where, id)
	o := r.find(id)
	var events []conversation.Event
	if o == nil {
		events = r.summarized(where, at)
		o = &openBlock{Entry: ledger.Entry{Conversation: where, Block: toolBlock(id, jsonscan.Text(p.name))}}
		o.Block.CreatedAt = l.time(at)
		events = append(events, r.start(o, at))
	}
	r.passed(o)
	o.Block.CreatedAt, o.Block.Input, o.Block.Status = l.time(at), jsonscan.Clone(p.input), conversation.Running
	return append(events, o.Updated(conversation.Updates{Status: conversation.Running, Input: o.Block.Input}, at))
}

// toolBlock returns the pending block of a call.
func toolBlock(id, name string) conversation.Block {
	b := conversation.Block{ID: id, Type: conversation.ToolUse, Status: conversation.Pending, Name: name, ToolUseID: id}
	if name == "Agent" || name == "Task" {
		b.Type, b.ToolUseID = conversation.Subagent, ""
	}
	return b
}

// user reads a line that a person or a tool has sent to the model.
func (r *reader) user(l record, at time.Time) []conversation.Event {
	m := decodeMessage(l.message)
	where := r.conversationOf(l)
	if l.isSummary || (l.isSynthetic && r.compaction(where) != nil) {
		return r.summary(where, words(m.content), at)
	}
	var events []conversation.Event
	results, others := 0, len(m.content) > 0 && m.content[0] == '"'
	jsonscan.Elements(m.content, func(raw []byte) {
		p := decodePart(raw)
		if !p.isResult() {
			others = true
			return
		}
		id := jsonscan.Text(l.uuid)
		if results > 0 {
			id += "/" + strconv.Itoa(results)
		}
		results++
		events = append(events, r.result(where, id, l, p, at)...)
	})
	if !others || l.isMeta || l.isSynthetic {
		return events
	}
	id := jsonscan.Text(l.uuid)
	if results > 0 {
		id += "/text"
	}
	return append(events, r.words(where, id, words(m.content), l, at)...)
}

// words reads a user line that is not a result. The program writes some of these lines itself.
func (r *reader) words(where, id, s string, l record, at time.Time) []conversation.Event {
	if l.notice || opens(s, noticeTag) {
		return r.notice(where, parseNotice(s), l, at)
	}
	if out, ok := printed(s); ok {
		return r.commandOutput(where, id, out, l, at)
	}
	if interrupts(s) {
		if where != conversation.Main {
			return nil // such as the results of calls during which a subagent was stopped
		}
		return r.system(where, id, "interrupted", s, l, at)
	}
	if where != conversation.Main {
		for _, a := range r.Agents {
			if a.ID == where && a.Prompt != 0 && a.Prompt == sum(s) {
				a.Prompt = 0
				return nil // already shown when the subagent started
			}
		}
	}
	return r.add(where, conversation.Block{
		ID: id, Type: conversation.UserMessage, CreatedAt: l.time(at), Content: userText(s),
	}, at)
}

// interrupts reports whether s is the mark of an interrupt.
func interrupts(s string) bool {
	return strings.HasPrefix(s, interruptMark) && strings.HasSuffix(s, "]") && len(s) < maxMark
}

// result reads the result of a call.
func (r *reader) result(where, id string, l record, p part, at time.Time) []conversation.Event {
	call := jsonscan.Text(p.toolUseID)
	status := conversation.Success
	switch {
	case p.isError && begins(p.content, notAllowedMark, interruptMark, unfinishedMark, lostMark, uncopiedMark):
		status = conversation.Aborted
	case p.isError:
		status = conversation.Failed
	}
	var events []conversation.Event
	if o := r.find(call); o != nil && (status != conversation.Success || !r.stays(o, l)) {
		r.left(call)
		events = append(events, r.close(o, status, at))
	}
	if p.isError && begins(p.content, lostMark, uncopiedMark) {
		return events // made up when the session was resumed, and never shown
	}
	if status == conversation.Aborted && where != conversation.Main {
		return events // made up when the subagent was stopped; it may or may not be in the stream
	}
	b := conversation.Block{
		ID: id, Type: conversation.ToolResult, Status: status, CreatedAt: l.time(at),
		ToolUseID: call, Output: output(p.content), IsError: p.isError,
	}
	if found := images(p.content); len(found) > 0 {
		b.Images = conversation.References(found)
		if r.pictured != nil {
			r.pictured(found)
		}
	}
	if r.Holding && where == conversation.Main {
		r.Held = append(r.Held, b)
		return events
	}
	return append(events, r.show(where, b, at)...)
}

// stays reports whether the call's subagent continues after its result.
func (r *reader) stays(o *openBlock, l record) bool {
	if o.Block.Type != conversation.Subagent {
		return false
	}
	a := r.agentOf(o.Block.ID)
	return l.async || (a != nil && a.Background)
}

// begins reports whether the content of a result is a text that begins with one of the marks.
func begins(content []byte, marks ...string) bool {
	return slices.ContainsFunc(marks, func(mark string) bool {
		return len(content) > len(mark)+1 && content[0] == '"' && string(content[1:1+len(mark)]) == mark
	})
}

// notice reads the end of a background task.
func (r *reader) notice(where string, n notice, l record, at time.Time) []conversation.Event {
	if o := r.find(n.toolUseID); o != nil && o.Block.Type == conversation.Subagent {
		r.left(n.toolUseID)
		return []conversation.Event{r.close(o, outcome(n.status), at)}
	}
	if n.summary == "" || isSubagent(n.task) || slices.Contains(r.Gone, n.task) || r.agentOf(n.toolUseID) != nil {
		return nil
	}
	return r.system(where, "task/"+n.task, "task", n.summary, l, at)
}

// enters records which subagent a call has started. prompt is its prompt, if the line that reports
// the start contains it.
func (r *reader) enters(a subagent, prompt string, at time.Time) []conversation.Event {
	created := at
	o := r.find(a.ToolUseID)
	var events []conversation.Event
	if o != nil {
		created = o.Block.CreatedAt
		o.Block.SubagentID = a.ID
		events = append(events, o.Updated(conversation.Updates{SubagentID: a.ID}, at))
	}
	if prompt != "" {
		a.Prompt = sum(prompt)
		events = append(events, ledger.Whole(a.ID, conversation.Block{
			ID: a.ID + "/prompt", Type: conversation.UserMessage, Status: conversation.Complete,
			CreatedAt: created, Content: prompt,
		}, at)...)
	}
	r.Agents = append(r.Agents, &a)
	return events
}

// left records that the subagent of a call has ended. It may be reported again.
func (r *reader) left(toolUseID string) {
	if a := r.agentOf(toolUseID); a != nil {
		r.Gone = append(r.Gone, a.ID)
		r.Gone = r.Gone[max(0, len(r.Gone)-maxGone):]
	}
	r.Agents = slices.DeleteFunc(r.Agents, func(a *subagent) bool { return a.ToolUseID == toolUseID })
}

// compacted opens the block of a compaction. The summary that follows closes it.
func (r *reader) compacted(l record, at time.Time) []conversation.Event {
	where := r.conversationOf(l)
	events := append(r.release(where, at), r.summarized(where, at)...)
	o := &openBlock{Entry: ledger.Entry{Conversation: where, Block: conversation.Block{
		ID: jsonscan.Text(l.uuid), Type: conversation.System, Status: conversation.Streaming, CreatedAt: l.time(at),
		Subtype: "compaction", Message: "The conversation was compacted.",
	}}}
	r.kept(where, o.Block.ID)
	return append(events, r.start(o, at))
}

// summary closes a compaction with its summary of the conversation.
func (r *reader) summary(where, words string, at time.Time) []conversation.Event {
	o := r.compaction(where)
	if o == nil {
		return nil
	}
	o.Block.Message = words
	return []conversation.Event{r.close(o, conversation.Complete, at)}
}

// summarized closes a compaction that has no summary when other output follows.
func (r *reader) summarized(where string, at time.Time) []conversation.Event {
	if o := r.compaction(where); o != nil {
		return []conversation.Event{r.close(o, conversation.Complete, at)}
	}
	return nil
}

// retried shows that a request to the model failed and is being retried.
func (r *reader) retried(l record, attempt, limit, status string, at time.Time) []conversation.Event {
	where := r.conversationOf(l)
	if where != conversation.Main {
		return nil // a subagent's; the stream does not identify the subagent
	}
	words := "A request to the model failed"
	if status != "" && status != "null" {
		words += " with status " + status
	}
	words += "; attempt " + attempt + " of " + limit + " to send it again."
	events := r.release(where, at)
	last := r.Last
	events = append(events, r.system(where, last+"/retry/"+attempt, "retry", words, l, at)...)
	r.Last = last
	return events
}

// discard removes the blocks of a message that the model has abandoned: another attempt, or an error,
// follows.
func (r *reader) discard(where string, at time.Time) []conversation.Event {
	return r.discardFrom(where, 0, at)
}

func (r *reader) discardFrom(where string, index int, at time.Time) []conversation.Event {
	var events []conversation.Event
	r.prepare()
	for _, o := range slices.Clone(r.writing) {
		if o.Conversation == where && o.Index >= index {
			events = append(events, r.remove(o, at))
		}
	}
	return events
}

// cut closes the open blocks, innermost first: a subagent ends before its block.
func (r *reader) cut(at time.Time) []conversation.Event {
	events := r.release(conversation.Main, at)
	for o := r.last(); o != nil; o = r.last() {
		switch o.Block.Type {
		case conversation.UserMessage:
			events = append(events, r.remove(o, at)) // the agent never read the message
		case conversation.System:
			events = append(events, r.close(o, conversation.Complete, at))
		default:
			events = append(events, r.close(o, conversation.Aborted, at))
		}
	}
	r.Agents = nil
	return events
}

// sum returns a hash of a text. It is never 0.
func sum(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s)) // never fails
	return h.Sum64() | 1
}
