package aisdk

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// replyID returns the id of the message that answers a prompt.
func replyID(promptID string) string { return "reply-" + promptID }

// maxLastText bounds the text of a subagent in its part; GET …/blocks has its conversation.
const maxLastText = 2 << 10

// Encoder creates the chunks of one prompt's turn. It needs the events of the session's log, in
// order, from the prompt's submission or from its first turn_start on. It is not safe for
// concurrent use.
type Encoder struct {
	turn    event.Turn
	session string
	running bool // in a step
	ended   bool // finish has been sent

	// The current step.
	parts  []part
	blocks map[string]part

	calls     map[string]bool      // all calls of the message, by id
	past      map[string]bool      // blocks of earlier steps
	results   map[string]string    // the calls of results that are not complete, by the block of the result
	subagents map[string]*subagent // by conversation
	questions map[string]resource.QuestionJSON

	out []Chunk
}

// subagent is the data of data-subagent.
type subagent struct {
	SubagentID string                   `json:"subagentId"`
	Name       string                   `json:"name"`
	Input      json.RawMessage          `json:"input,omitempty"`
	Status     conversation.BlockStatus `json:"status"`
	Output     json.RawMessage          `json:"output,omitempty"`
	ToolCalls  int                      `json:"toolCalls"`      // that it has completed
	Text       string                   `json:"text,omitempty"` // its last text, at most maxLastText

	blockID string
}

// NewEncoder returns an encoder for a prompt of a session.
func NewEncoder(sessionID, promptID string) *Encoder {
	return &Encoder{
		turn: event.Turn{PromptID: promptID}, session: sessionID, blocks: map[string]part{}, calls: map[string]bool{}, past: map[string]bool{},
		results: map[string]string{}, subagents: map[string]*subagent{}, questions: map[string]resource.QuestionJSON{},
	}
}

// Start returns the first chunk of the stream.
func (e *Encoder) Start() []Chunk {
	return []Chunk{{
		Type: "start", MessageID: replyID(e.turn.PromptID),
		MessageMetadata: &Metadata{SessionID: e.session, PromptID: e.turn.PromptID},
	}}
}

// Complete reports whether the stream is complete.
func (e *Encoder) Complete() bool { return e.ended }

// Gap returns the chunk for deleted events. If they were compacted, later events have everything
// that the message needs, and the chunk is not part of it.
func (e *Encoder) Gap(from, to int64, compacted bool) []Chunk {
	return []Chunk{{Type: "data-gap", Data: encode(map[string]int64{"from": from, "to": to}), Transient: compacted}}
}

// Next returns the chunks of the next event. An error means that its data does not fit its type.
func (e *Encoder) Next(ev eventlog.Event) ([]Chunk, error) {
	if e.ended {
		return nil, nil
	}
	relation, err := e.turn.Next(ev)
	if err != nil || relation == event.OfOthers {
		return nil, err
	}
	e.out = nil
	if relation == event.OfSession {
		e.transient(ev)
		return e.out, nil
	}
	if err := e.apply(ev); err != nil {
		return nil, fmt.Errorf("%s event %d: %w", ev.Type, ev.Seq, err)
	}
	return e.out, nil
}

// Finish returns the end of the stream of a prompt that has an outcome.
func (e *Encoder) Finish(p resource.PromptJSON, seq int64) []Chunk {
	e.out = nil
	e.turn.Prompt = p
	e.finish(seq)
	return e.out
}

func (e *Encoder) emit(chunks ...Chunk) { e.out = append(e.out, chunks...) }

// transient passes on an event that is shown when it happens but is not part of the message.
func (e *Encoder) transient(ev eventlog.Event) {
	e.emit(Chunk{Type: "data-" + ev.Type, Data: ev.Data, Transient: true})
}

func (e *Encoder) apply(ev eventlog.Event) error {
	switch ev.Type {
	case event.TypeTurnStart:
		e.turnStart(ev.Seq)
	case event.TypeTurnEnd:
		return into(ev, func(d event.TurnEndData) { e.turnEnd(d, ev.Seq) })
	case event.TypePrompt:
		e.transient(ev)
		if e.turn.Ended() {
			e.finish(ev.Seq)
		}
	case event.TypeQuestion:
		return into(ev, func(d event.QuestionData) { e.question(d.Question) })
	case event.TypeQuestionResolved:
		return into(ev, func(d event.QuestionResolvedData) { e.resolved(d) })
	case string(conversation.EventBlockStart):
		return into(ev, func(d conversation.BlockStart) { e.block(ev.ConversationID, d.Block, false) })
	case string(conversation.EventBlockComplete):
		return into(ev, func(d conversation.BlockComplete) { e.block(ev.ConversationID, d.Block, true) })
	case string(conversation.EventTextDelta):
		return into(ev, func(d conversation.TextDelta) { e.textDelta(ev.ConversationID, d) })
	case string(conversation.EventBlockUpdate):
		return into(ev, func(d conversation.BlockUpdate) { e.blockUpdate(ev.ConversationID, d) })
	case string(conversation.EventBlockRemoved):
		return into(ev, func(d conversation.BlockRemoved) { e.blockRemoved(ev.ConversationID, d.BlockID) })
	case string(conversation.EventMetadataUpdate):
		return into(ev, func(d conversation.MetadataUpdate) {
			e.emit(Chunk{Type: "message-metadata", MessageMetadata: &Metadata{
				Model: d.Model, CostUSD: d.CostUSD, Usage: &Usage{InputTokens: d.Usage.InputTokens, OutputTokens: d.Usage.OutputTokens},
			}})
		})
	case string(conversation.EventError):
		e.addData("", Chunk{Type: "data-error", Data: ev.Data})
	default:
		e.transient(ev)
	}
	return nil
}

// into decodes the data of an event for a function.
func into[T any](ev eventlog.Event, apply func(T)) error {
	var d T
	if err := json.Unmarshal(ev.Data, &d); err != nil {
		return err
	}
	apply(d)
	return nil
}

func (e *Encoder) turnStart(seq int64) {
	if e.running { // by another worker
		return
	}
	e.running = true
	e.emit(Chunk{Type: "message-metadata", MessageMetadata: &Metadata{RunID: e.turn.RunID, Seq: seq}})
	e.beginStep()
}

func (e *Encoder) beginStep() {
	for id := range e.blocks {
		e.past[id] = true
	}
	clear(e.blocks)
	e.parts = nil
	e.emit(Chunk{Type: "start-step"})
}

// mayBeginStep begins a step before a new block of the model if the last one is complete.
func (e *Encoder) mayBeginStep() {
	called := false
	for _, p := range e.parts {
		switch p := p.(type) {
		case *textPart:
			if !p.closed {
				return
			}
		case *toolPart:
			if !p.resolved() {
				return
			}
			called = true
		}
	}
	if called {
		e.emit(Chunk{Type: "finish-step"})
		e.beginStep()
	}
}

// endStep closes all open parts.
func (e *Encoder) endStep() {
	if !e.running {
		return
	}
	for _, p := range e.parts {
		switch p := p.(type) {
		case *textPart:
			if !p.closed {
				p.closed = true
				e.emit(p.end())
			}
		case *toolPart:
			if p.resolved() {
				continue
			}
			e.called(p)
			last := outputError(p.callID, "the call has no result")
			if p.status == conversation.Success {
				last = Chunk{Type: "tool-output-available", ToolCallID: p.callID, Output: json.RawMessage("null")}
			}
			p.output = &last
			e.emit(last)
		}
	}
	e.running = false
	e.emit(Chunk{Type: "finish-step"})
}

func (e *Encoder) turnEnd(d event.TurnEndData, seq int64) {
	e.endStep()
	meta := &Metadata{RunID: d.RunID, Model: d.Model, Seq: seq}
	if d.Usage != nil {
		meta.usage(*d.Usage)
	}
	e.emit(Chunk{Type: "message-metadata", MessageMetadata: meta})
}

func (m *Metadata) usage(u resource.UsageJSON) {
	m.Usage = &Usage{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, ToolCalls: u.ToolCalls}
	m.CostUSD = u.CostUSD
}

// finish ends the stream. The metadata precedes an error, because useChat reads nothing after an
// error.
func (e *Encoder) finish(seq int64) {
	e.endStep()
	e.ended = true
	p := e.turn.Prompt
	e.emit(Chunk{Type: "message-metadata", MessageMetadata: &Metadata{RunID: p.RunID, Status: string(p.Status), Reason: p.Reason, Seq: seq}})
	reason := "stop"
	switch p.Status {
	case session.PromptCancelled:
		reason = "interrupted"
		e.emit(Chunk{Type: "abort", Reason: p.Reason})
	case session.PromptFailed:
		reason = "error"
		e.emit(Chunk{Type: "error", ErrorText: "the turn failed: " + cmp.Or(p.Reason, "the agent gave no reason")})
	case session.PromptUnknown:
		reason = "error"
		e.emit(Chunk{Type: "error", ErrorText: "the outcome of the turn is unknown: " + cmp.Or(p.Reason, "no reason is recorded")})
	case session.PromptQueued, session.PromptProcessing, session.PromptCompleted:
	}
	e.emit(Chunk{Type: "finish", FinishReason: reason})
}

// add appends a part to the step, indexed by its block if it has one.
func (e *Encoder) add(blockID string, p part) {
	e.parts = append(e.parts, p)
	if blockID != "" {
		e.blocks[blockID] = p
	}
}

// addData adds a part with data, or replaces the data of the one with that id.
func (e *Encoder) addData(id string, c Chunk) {
	c.ID = id
	if have, ok := e.blocks[id].(*dataPart); ok {
		have.chunk = c
	} else if !e.past[id] { // a part of an earlier step is found by its id
		e.add(id, &dataPart{c})
	}
	e.emit(c)
}

// reset replaces the step by its current state.
func (e *Encoder) reset() {
	e.emit(Chunk{Type: "reset-step"})
	for _, p := range e.parts {
		e.emit(p.chunks()...)
	}
}

// block handles a block that starts or is complete.
func (e *Encoder) block(conversationID string, b conversation.Block, complete bool) {
	if conversationID != "" && conversationID != conversation.Main {
		if complete {
			e.subagentBlock(conversationID, b)
		}
		return
	}
	if e.past[b.ID] && b.Type != conversation.ToolResult && b.Type != conversation.System && b.Type != conversation.Subagent {
		return
	}
	switch b.Type {
	case conversation.UserMessage:
		if b.PromptID != e.turn.PromptID && complete {
			e.addData(b.ID, Chunk{Type: "data-user-message", Data: encode(b)})
		}
	case conversation.AssistantText:
		e.text("text", b, complete)
	case conversation.Thinking:
		e.text("reasoning", b, complete)
	case conversation.ToolUse:
		e.toolUse(b)
	case conversation.ToolResult:
		e.toolResult(b)
	case conversation.Subagent:
		e.subagentPart(b)
	case conversation.System:
		e.addData(b.ID, Chunk{Type: "data-system", Data: encode(map[string]string{"subtype": b.Subtype, "message": b.Message})})
	default:
		e.addData(b.ID, Chunk{Type: "data-block", Data: encode(b)})
	}
}

// text shows the text of b.
func (e *Encoder) text(kind string, b conversation.Block, complete bool) {
	p, ok := e.blocks[b.ID].(*textPart)
	if !ok {
		e.mayBeginStep()
		p = &textPart{kind: kind, id: b.ID}
		e.add(b.ID, p)
		e.emit(p.start())
	}
	more, extends := strings.CutPrefix(b.Content, p.text)
	if !extends || p.closed && (more != "" || !complete) {
		p.text, p.closed = b.Content, complete
		e.reset()
		return
	}
	if more != "" {
		p.text = b.Content
		e.emit(p.delta(more))
	}
	if complete && !p.closed {
		p.closed = true
		e.emit(p.end())
	}
}

func (e *Encoder) textDelta(conversationID string, d conversation.TextDelta) {
	if conversationID != "" && conversationID != conversation.Main || d.Delta == "" {
		return
	}
	if p, ok := e.blocks[d.BlockID].(*textPart); ok && !p.closed {
		p.text += d.Delta
		e.emit(p.delta(d.Delta))
	}
}

func (e *Encoder) blockUpdate(conversationID string, d conversation.BlockUpdate) {
	if conversationID != "" && conversationID != conversation.Main {
		return
	}
	u := d.Updates
	switch p := e.blocks[d.BlockID].(type) {
	case *toolPart:
		b := conversation.Block{Name: cmp.Or(u.Name, p.name), Status: cmp.Or(u.Status, p.status), Input: p.input, Tool: p.tool}
		if len(u.Input) > 0 {
			b.Input = u.Input
		}
		if u.Kind != "" {
			b.Tool = u.Tool
		}
		e.toolChange(p, b)
		return
	case *textPart:
		if !p.closed && u.Status != "" && !u.Status.Open() { // a long text that was aborted
			p.closed = true
			e.emit(p.end())
		}
	case *dataPart:
	}
	if callID := e.results[d.BlockID]; callID != "" && len(u.Output) > 0 {
		if c, ok := outputOf(callID, conversation.Block{Status: conversation.Running, Output: u.Output}); ok {
			e.output(c)
		}
	}
	if s := e.subagentOf(d.BlockID); s != nil {
		e.subagentUpdate(s, u)
	}
}

func (e *Encoder) blockRemoved(conversationID, id string) {
	if conversationID != "" && conversationID != conversation.Main {
		return
	}
	p, ok := e.blocks[id]
	if !ok {
		if e.past[id] {
			c := Chunk{Type: "data-removed", ID: id, Data: encode(BlockMetadata{BlockID: id})}
			e.add("", &dataPart{c})
			e.emit(c)
		}
		return
	}
	delete(e.blocks, id)
	e.parts = slices.DeleteFunc(e.parts, func(x part) bool { return x == p })
	if tool, ok := p.(*toolPart); ok {
		delete(e.calls, tool.callID)
	}
	e.reset()
}

// toolUse shows the call of b.
func (e *Encoder) toolUse(b conversation.Block) {
	p, ok := e.blocks[b.ID].(*toolPart)
	if !ok {
		e.mayBeginStep()
		p = &toolPart{callID: cmp.Or(b.ToolUseID, b.ID), name: b.Name, tool: b.Tool}
		e.calls[p.callID] = true
		e.add(b.ID, p)
		e.emit(p.call("tool-input-start"))
	}
	e.toolChange(p, b)
}

// toolChange shows the changes of a call.
func (e *Encoder) toolChange(p *toolPart, b conversation.Block) {
	p.status = b.Status
	same := cmp.Or(b.Name, p.name) == p.name && string(p.input) == string(b.Input)
	p.name = cmp.Or(b.Name, p.name)
	if b.Kind != "" {
		same = same && string(encode(p.tool)) == string(encode(b.Tool))
		p.tool = b.Tool
	}
	if len(b.Input) == 0 || same {
		return
	}
	first := p.input == nil
	p.input = b.Input
	e.emit(p.called())
	if !first { // which has replaced the following parts
		e.emit(p.chunks()[2:]...)
	}
}

// called makes sure that the call has an input, which a result or a question requires.
func (e *Encoder) called(p *toolPart) {
	if p.input == nil {
		p.input = json.RawMessage("{}")
		e.emit(p.called())
	}
}

// call returns the call with an id in the current step; nil if it is not there.
func (e *Encoder) call(callID string) *toolPart {
	for _, p := range e.parts {
		if tool, ok := p.(*toolPart); ok && tool.callID == callID {
			return tool
		}
	}
	return nil
}

func (e *Encoder) toolResult(b conversation.Block) {
	if s := e.subagentOf(b.ToolUseID); s != nil {
		if !b.Status.Open() {
			s.Output = b.Output
			e.addData(s.blockID, Chunk{Type: "data-subagent", Data: encode(s)})
		}
		return
	}
	if !e.calls[b.ToolUseID] {
		if !b.Status.Open() { // of a call of an earlier turn
			e.addData(b.ID, Chunk{Type: "data-block", Data: encode(b)})
		}
		return
	}
	if b.Status.Open() {
		e.results[b.ID] = b.ToolUseID
	} else {
		delete(e.results, b.ID)
	}
	if c, ok := outputOf(b.ToolUseID, b); ok {
		e.output(c)
	}
}

// output shows the result of a call.
func (e *Encoder) output(c Chunk) {
	if p := e.call(c.ToolCallID); p != nil {
		e.called(p)
		p.output = &c
	}
	e.emit(c)
}

func (e *Encoder) question(q resource.QuestionJSON) {
	e.questions[q.ID] = q
	e.addData(q.ID, Chunk{Type: "data-question", Data: encode(q)})
	p, ok := e.blocks[q.ToolUseID].(*toolPart)
	if !ok || q.Kind != question.Permission || p.resolved() {
		return
	}
	if p.input == nil && len(q.Input) > 0 {
		p.input = q.Input
		e.emit(p.called())
	}
	e.called(p)
	p.asked, p.answer = q.ID, nil
	e.emit(p.ask())
}

func (e *Encoder) resolved(d event.QuestionResolvedData) {
	q, ok := e.questions[d.QuestionID]
	if !ok {
		return
	}
	delete(e.questions, d.QuestionID)
	q.Answer, q.Answers, q.Message, q.AnsweredBy, q.Reason = d.Answer, d.Answers, d.Message, d.AnsweredBy, d.Reason
	switch {
	case d.Answer != "":
		q.Status = question.Answered
	case d.Reason == question.ReasonExpired:
		q.Status = question.Expired
	default:
		q.Status = question.Cancelled
	}
	e.addData(q.ID, Chunk{Type: "data-question", Data: encode(q)})
	for _, p := range e.parts {
		if p, ok := p.(*toolPart); ok && p.asked == q.ID && !p.resolved() {
			approved := d.Answer != "" && d.Answer != question.Reject
			p.answer = &Chunk{Type: "tool-approval-response", ApprovalID: q.ID, Approved: &approved, Reason: cmp.Or(d.Message, d.Reason)}
			e.emit(*p.answer)
		}
	}
}

// subagentOf returns the subagent that a block of the main conversation shows; nil if it shows none.
func (e *Encoder) subagentOf(blockID string) *subagent {
	for _, s := range e.subagents {
		if s.blockID == blockID && blockID != "" {
			return s
		}
	}
	return nil
}

// subagentPart shows the subagent of b.
func (e *Encoder) subagentPart(b conversation.Block) {
	s := e.subagentOf(b.ID)
	if s == nil {
		key := cmp.Or(b.SubagentID, b.ID)
		if s = e.subagents[key]; s == nil {
			s = &subagent{}
			e.subagents[key] = s
		}
		s.blockID = b.ID
	}
	e.subagentUpdate(s, conversation.Updates{Status: b.Status, Name: b.Name, Input: b.Input, SubagentID: b.SubagentID})
}

func (e *Encoder) subagentUpdate(s *subagent, u conversation.Updates) {
	s.Status, s.Name = cmp.Or(u.Status, s.Status), cmp.Or(u.Name, s.Name)
	if len(u.Input) > 0 {
		s.Input = u.Input
	}
	if u.SubagentID != "" && u.SubagentID != s.SubagentID {
		s.SubagentID = u.SubagentID
		if early := e.subagents[s.SubagentID]; early != nil && early != s {
			s.ToolCalls, s.Text = early.ToolCalls, early.Text
		}
		e.subagents[s.SubagentID] = s
	}
	e.addData(s.blockID, Chunk{Type: "data-subagent", Data: encode(s)})
}

// subagentBlock handles a block of a subagent's conversation.
func (e *Encoder) subagentBlock(conversationID string, b conversation.Block) {
	s := e.subagents[conversationID]
	if s == nil {
		s = &subagent{SubagentID: conversationID}
		e.subagents[conversationID] = s
	}
	switch b.Type {
	case conversation.AssistantText:
		s.Text = strings.ToValidUTF8(b.Content[:min(len(b.Content), maxLastText)], "")
	case conversation.ToolUse:
		s.ToolCalls++
	default:
		return
	}
	if s.blockID != "" {
		e.addData(s.blockID, Chunk{Type: "data-subagent", Data: encode(s)})
	}
}
