package agui

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/resource"
)

// maxShown is the number of blocks that an encoder tracks before it requires another snapshot.
const maxShown = 2 * MaxSnapshotMessages

// Encoder creates the events of one AG-UI run. It is not safe for concurrent use.
type Encoder struct {
	threadID string
	runID    string
	promptID string
	prompt   resource.PromptJSON // as it was reported last
	usage    *TokenUsage

	open      []*entity // in the order in which they were opened
	shown     map[key]digest
	subagents map[string]bool   // by conversation: true while it is open
	blocks    map[string]string // conversations of subagents by their blocks

	complete, stale, asked bool

	at  int64
	out []Event
}

type key struct{ conversationID, blockID string }

// userKey is the prefix of keys for a user's message, which has an id instead of a block.
const userKey = "user "

// entity is a block that is open in the stream.
type entity struct {
	key
	kind    conversation.BlockType
	id      string // of the message or the call
	name    string // of the tool
	input   json.RawMessage
	started bool // of a call

	text maphash.Hash // of a text: the part that was sent
	sent int
}

// NewEncoder returns the encoder of a run that ends with a prompt. Without a prompt, the run ends
// with its snapshot.
func NewEncoder(threadID, runID, promptID string) *Encoder {
	return &Encoder{
		threadID: threadID, runID: runID, promptID: promptID,
		shown: map[key]digest{}, subagents: map[string]bool{}, blocks: map[string]string{},
	}
}

// Start returns the first event. A snapshot follows it.
func (e *Encoder) Start() []Event {
	return []Event{{Type: "RUN_STARTED", ThreadID: e.threadID, RunID: e.runID, ProtocolVersion: protocolVersion}}
}

// Complete reports that the run has ended.
func (e *Encoder) Complete() bool { return e.complete }

// Stale reports that another snapshot must follow, because something changed that was complete for
// the client.
func (e *Encoder) Stale() bool { return e.stale || len(e.shown) > maxShown }

// Miss records that events were deleted, so another snapshot must follow.
func (e *Encoder) Miss() { e.stale = true }

// Asked reports whether the agent has asked a question since the last call.
func (e *Encoder) Asked() bool {
	asked := e.asked
	e.asked = false
	return asked
}

// Snapshot returns the frames of the conversation at a position. The events after it follow.
func (e *Encoder) Snapshot(s *Snapshot) []byte {
	e.out, e.at, e.stale = nil, 0, false
	e.closeBlocks()
	frames := s.appendSSE(AppendSSE(nil, e.out))
	e.out = nil
	clear(e.shown)
	s.each(func(it *item) {
		switch {
		case it.block.Type == conversation.Subagent:
			if it.block.Status.Open() || e.subagents[it.block.SubagentID] {
				e.subagent(it.block)
			}
		case it.message == nil:
			e.block(it.conversationID, it.block, false)
		default:
			k := keyOf(it.conversationID, it.block)
			e.shown[k] = it.digest
			if it.userID != "" {
				e.shown[key{k.conversationID, userKey + it.userID}] = digest{}
			}
		}
	})
	return AppendSSE(frames, e.out)
}

// Next returns the events of the next event of the log. An error means that its data does not fit its type.
func (e *Encoder) Next(ev eventlog.Event) ([]Event, error) {
	if e.complete || e.stale {
		return nil, nil
	}
	e.out, e.at = nil, 0
	if !ev.At.IsZero() {
		e.at = ev.At.UnixMilli()
	}
	if err := e.apply(ev); err != nil {
		return nil, fmt.Errorf("%s event %d: %w", ev.Type, ev.Seq, err)
	}
	return e.out, nil
}

func (e *Encoder) apply(ev eventlog.Event) error {
	switch ev.Type {
	case event.TypePrompt:
		return into(ev, func(d event.PromptData) {
			e.custom(ev)
			if p := d.Prompt.Whole(); p.ID == e.promptID && p.Status.Final() {
				e.prompt = p
				e.finish()
			}
		})
	case event.TypeTurnEnd:
		return into(ev, func(d event.TurnEndData) {
			e.closeAll(nil)
			if d.PromptID == e.promptID && d.Usage != nil {
				e.usage = &TokenUsage{Model: d.Model, InputTokens: d.Usage.InputTokens, OutputTokens: d.Usage.OutputTokens}
			}
			e.custom(ev)
		})
	case event.TypeQuestion:
		e.asked = true
		e.custom(ev)
	case string(conversation.EventBlockStart):
		return into(ev, func(d conversation.BlockStart) { e.block(ev.ConversationID, d.Block, false) })
	case string(conversation.EventBlockComplete):
		return into(ev, func(d conversation.BlockComplete) { e.block(ev.ConversationID, d.Block, true) })
	case string(conversation.EventTextDelta):
		return into(ev, func(d conversation.TextDelta) {
			if o := e.find(key{cmp.Or(ev.ConversationID, conversation.Main), d.BlockID}); o != nil {
				e.text(o, d.Delta)
			}
		})
	case string(conversation.EventBlockUpdate):
		return into(ev, func(d conversation.BlockUpdate) { e.update(ev.ConversationID, d) })
	case string(conversation.EventBlockRemoved):
		return into(ev, func(d conversation.BlockRemoved) {
			k := key{cmp.Or(ev.ConversationID, conversation.Main), d.BlockID}
			if _, ok := e.shown[k]; ok || e.find(k) != nil {
				e.stale = true
			}
		})
	default:
		e.custom(ev)
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

func (e *Encoder) emit(ev Event) {
	ev.Timestamp = e.at
	e.out = append(e.out, ev)
}

func (e *Encoder) custom(ev eventlog.Event) {
	e.emit(Event{Type: "CUSTOM", Name: ev.Type, Value: ev.Data})
}

func keyOf(conversationID string, b conversation.Block) key {
	return key{cmp.Or(conversationID, conversation.Main), b.ID}
}

func (e *Encoder) find(k key) *entity {
	for _, o := range e.open {
		if o.key == k {
			return o
		}
	}
	return nil
}

// owner is the subagent of a conversation; empty for the main one.
func owner(conversationID string) string {
	if conversationID == conversation.Main {
		return ""
	}
	return conversationID
}

// known reports whether a block has been shown and is closed. If it has changed since, the stream
// is stale.
func (e *Encoder) known(k key, now digest, complete bool) bool {
	have, ok := e.shown[k]
	if ok && (!complete || have != now) {
		e.stale = true
	}
	return ok
}

// block handles a block that starts or is complete.
func (e *Encoder) block(conversationID string, b conversation.Block, complete bool) {
	k := keyOf(conversationID, b)
	complete = complete || !b.Status.Open()
	switch b.Type {
	case conversation.AssistantText, conversation.Thinking:
		e.textBlock(k, b, complete)
	case conversation.ToolUse:
		o := e.find(k)
		if o == nil {
			if e.changed(k, b.Name, b.Input) {
				return
			}
			o = &entity{key: k, id: callID(b), kind: b.Type}
			e.open = append(e.open, o)
		}
		e.call(o, b.Name, b.Input, b.Status)
		if complete {
			e.close(o)
		}
	case conversation.ToolResult:
		if complete && !e.known(k, digestOf(b), true) {
			e.result(k, b)
		}
	case conversation.UserMessage:
		if complete {
			e.user(k, b)
		}
	case conversation.Subagent:
		e.subagent(b)
	default:
		if complete {
			e.emit(Event{Type: "CUSTOM", Name: string(b.Type), SubagentRunID: owner(k.conversationID), Value: encode(b)})
		}
	}
}

// user shows a message of a person or of another agent. The message of a prompt is shown once, even
// if it has several runs.
func (e *Encoder) user(k key, b conversation.Block) {
	id := cmp.Or(b.PromptID, b.ID)
	userBlock := key{k.conversationID, userKey + id}
	if _, ok := e.shown[userBlock]; ok || e.known(k, digestOf(b), true) || b.PromptID == e.promptID && b.PromptID != "" {
		return
	}
	e.shown[userBlock], e.shown[k] = digest{}, digestOf(b)
	tag := owner(k.conversationID)
	e.emit(Event{Type: "TEXT_MESSAGE_START", MessageID: id, Role: "user", SubagentRunID: tag})
	if b.Content != "" {
		e.emit(Event{Type: "TEXT_MESSAGE_CONTENT", MessageID: id, Delta: b.Content, SubagentRunID: tag})
	}
	e.emit(Event{Type: "TEXT_MESSAGE_END", MessageID: id, SubagentRunID: tag})
}

func (e *Encoder) textBlock(k key, b conversation.Block, complete bool) {
	o := e.find(k)
	if o == nil {
		if e.known(k, digestOf(b), complete) {
			return
		}
		o = e.begin(k, b.Type)
	}
	if len(b.Content) < o.sent || hash(b.Content[:o.sent]) != o.text.Sum64() {
		e.stale = true
		return
	}
	e.text(o, b.Content[o.sent:])
	if complete {
		e.close(o)
	}
}

// begin opens a text.
func (e *Encoder) begin(k key, kind conversation.BlockType) *entity {
	o := &entity{key: k, id: k.blockID, kind: kind}
	o.text.SetSeed(seed)
	e.open = append(e.open, o)
	tag := owner(k.conversationID)
	if kind == conversation.AssistantText {
		e.emit(Event{Type: "TEXT_MESSAGE_START", MessageID: o.id, Role: "assistant", SubagentRunID: tag})
		return o
	}
	e.emit(Event{Type: "REASONING_START", MessageID: o.id, SubagentRunID: tag})
	e.emit(Event{Type: "REASONING_MESSAGE_START", MessageID: o.id, Role: "reasoning", SubagentRunID: tag})
	return o
}

func (e *Encoder) text(o *entity, more string) {
	if more == "" || o.kind == conversation.ToolUse {
		return
	}
	o.text.WriteString(more)
	o.sent += len(more)
	kind := "TEXT_MESSAGE_CONTENT"
	if o.kind == conversation.Thinking {
		kind = "REASONING_MESSAGE_CONTENT"
	}
	e.emit(Event{Type: kind, MessageID: o.id, Delta: more, SubagentRunID: owner(o.conversationID)})
}

// changed reports whether a call has been shown completely. If its name or input has changed since,
// the stream is stale.
func (e *Encoder) changed(k key, name string, input json.RawMessage) bool {
	have, ok := e.shown[k]
	if ok && (name != "" && hash(name) != have.name || len(input) > 0 && hash(arguments(input)) != have.content) {
		e.stale = true
	}
	return ok
}

// call handles the current state of a call. Its input cannot be changed once it is sent, which
// happens when the running tool is reported with it, because earlier reports of an agent are often
// provisional.
func (e *Encoder) call(o *entity, name string, input json.RawMessage, status conversation.BlockStatus) {
	if o.started && name != "" && name != o.name {
		e.stale = true // the client has the other name
	}
	o.name = cmp.Or(name, o.name)
	if len(input) > 0 {
		o.input = input
	}
	if !o.started && o.name != "" {
		e.startCall(o)
	}
	if len(input) > 0 && status == conversation.Running {
		e.close(o)
	}
}

func (e *Encoder) startCall(o *entity) {
	o.started = true
	e.emit(Event{Type: "TOOL_CALL_START", ToolCallID: o.id, ToolCallName: cmp.Or(o.name, unnamedTool), SubagentRunID: owner(o.conversationID)})
}

func (e *Encoder) update(conversationID string, d conversation.BlockUpdate) {
	u := d.Updates
	k := key{cmp.Or(conversationID, conversation.Main), d.BlockID}
	if o := e.find(k); o != nil {
		if o.kind == conversation.ToolUse {
			e.call(o, u.Name, u.Input, u.Status)
		}
		if u.Status != "" && !u.Status.Open() {
			e.close(o)
		}
		return
	}
	if e.changed(k, u.Name, u.Input) {
		return
	}
	e.subagent(conversation.Block{ID: d.BlockID, SubagentID: u.SubagentID, Name: u.Name, Status: cmp.Or(u.Status, conversation.Running)})
}

// close ends the open items of a block. It does nothing if the block is closed.
func (e *Encoder) close(o *entity) {
	i := slices.Index(e.open, o)
	if i < 0 {
		return
	}
	e.open = slices.Delete(e.open, i, i+1)
	tag := owner(o.conversationID)
	switch o.kind {
	case conversation.AssistantText:
		e.emit(Event{Type: "TEXT_MESSAGE_END", MessageID: o.id, SubagentRunID: tag})
	case conversation.Thinking:
		e.emit(Event{Type: "REASONING_MESSAGE_END", MessageID: o.id, SubagentRunID: tag})
		e.emit(Event{Type: "REASONING_END", MessageID: o.id, SubagentRunID: tag})
	default: // a call
		if !o.started {
			e.startCall(o)
		}
		e.emit(Event{Type: "TOOL_CALL_ARGS", ToolCallID: o.id, Delta: arguments(o.input), SubagentRunID: tag})
		e.emit(Event{Type: "TOOL_CALL_END", ToolCallID: o.id, SubagentRunID: tag})
		e.shown[o.key] = digest{hash(cmp.Or(o.name, unnamedTool)), hash(arguments(o.input))}
		return
	}
	e.shown[o.key] = digest{content: o.text.Sum64()}
}

// result shows the result of a tool, which completes its call.
func (e *Encoder) result(k key, b conversation.Block) {
	for _, o := range e.open {
		if o.kind == conversation.ToolUse && o.id == b.ToolUseID {
			e.close(o)
			break
		}
	}
	e.shown[k] = digestOf(b)
	text := plain(b.Output)
	e.emit(Event{Type: "TOOL_CALL_RESULT", MessageID: b.ID, ToolCallID: b.ToolUseID, Role: "tool", Content: &text, SubagentRunID: owner(k.conversationID)})
}

// subagent handles the current state of a subagent. Its block may name its conversation late.
func (e *Encoder) subagent(b conversation.Block) {
	if b.SubagentID != "" {
		e.blocks[b.ID] = b.SubagentID
	}
	id := e.blocks[b.ID]
	if id == "" {
		return
	}
	isOpen, known := e.subagents[id]
	if !known {
		isOpen = true
		e.subagents[id] = true
		e.emit(Event{Type: "SUBAGENT_STARTED", SubagentRunID: id, Name: cmp.Or(b.Name, "subagent")})
	}
	switch {
	case !isOpen || b.Status.Open():
	case b.Status == conversation.Success:
		e.endSubagent(Event{Type: "SUBAGENT_FINISHED", SubagentRunID: id})
	default:
		e.endSubagent(Event{Type: "SUBAGENT_ERROR", SubagentRunID: id, Message: "the subagent ended: " + string(b.Status)})
	}
}

func (e *Encoder) endSubagent(ev Event) {
	e.subagents[ev.SubagentRunID] = false
	e.emit(ev)
}

func (e *Encoder) closeBlocks() {
	for len(e.open) > 0 {
		e.close(e.open[0])
	}
}

// closeAll ends all open items. Subagents end with an outcome, or successfully.
func (e *Encoder) closeAll(outcome *Outcome) {
	e.closeBlocks()
	var ids []string
	for id, isOpen := range e.subagents {
		if isOpen {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		e.endSubagent(Event{Type: "SUBAGENT_FINISHED", SubagentRunID: id, Outcome: outcome})
	}
}
