package claude

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/jsonscan"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/agent/translate"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// translator translates the frames of one run.
type translator struct {
	translate.Turn
	state state
}

// stateVersion is the version of the state's encoding.
const stateVersion = 1

type state struct {
	reader
	turn
	// Shown are the messages of people that this run has already shown: the agent repeats them.
	Shown []string `json:"shown,omitempty"`
	// Owed are messages that the agent has accepted and not yet repeated. They are opened before
	// any other output, so that they are in the right position.
	Owed []string `json:"owed,omitempty"`
	// Waiting are the open questions.
	Waiting []waiting `json:"waiting,omitempty"`
	// Expected are the prompts added to the running turn.
	Expected translate.Expected `json:"expected,omitempty"`
}

type waiting struct {
	ID        string `json:"id"`
	ToolUseID string `json:"toolUseId"`
}

var (
	_ agent.Listener = (*translator)(nil)
	_ agent.Expecter = (*translator)(nil)
)

// maxShown bounds state.Shown. The agent repeats a message soon or never.
const maxShown = 256

// NewTranslator starts a run, or resumes from a state. Without a run id it translates a captured
// stream, each turn in it as a run.
func (Adapter) NewTranslator(run agent.RunContext, from []byte) (agent.Translator, error) {
	t := &translator{Turn: translate.Turn{Run: run}}
	if err := t.Restore("claude", from, stateVersion, &t.state); err != nil {
		return nil, err
	}
	t.state.pictured = t.Picture
	return t, nil
}

// Expect registers a prompt for the running turn.
func (t *translator) Expect(s agent.Steered) (waits bool) {
	t.Changed()
	return t.state.Expected.Add(steerUUID(t.Run.RunID, s.PromptID), s)
}

// State returns the state from which a later translator resumes.
func (t *translator) State() ([]byte, error) { return t.Turn.State(stateVersion, &t.state) }

// Translate translates one frame.
func (t *translator) Translate(f agent.Frame) (agent.Translation, error) {
	return t.Read(f, t.state.Ended, t.line, t.exit), nil
}

// Cut aborts the open blocks.
func (t *translator) Cut(at time.Time) []conversation.Event {
	t.Changed()
	return t.state.cut(at.UTC())
}

// line reads a line of stdout.
func (t *translator) line(f agent.Frame) {
	at := f.At
	l, ok := decode(f.Data)
	if !ok {
		t.Unparsed(f, bounded(f.Data))
		return
	}
	switch string(l.kind[1 : len(l.kind)-1]) {
	case "stream_event":
		t.partial(l, at)
	case "assistant":
		t.worked()
		t.owed(at)
		t.Emit(t.state.assistant(l, at)...)
	case "user":
		t.user(l, at)
	case "system":
		t.system(f, l, at)
	case "result":
		t.result(l, at)
	case "control_request":
		t.asked(l)
	case "control_cancel_request":
		t.resolved(jsonscan.Text(jsonscan.Field(l.raw, "request_id")))
	case "control_response":
		t.responded(l)
	case "command_lifecycle":
		t.lifecycle(l, at)
	case "transcript_mirror":
		t.mirror(l, at)
	case "rate_limit_event", "conversation_reset", "tool_progress", "tool_use_summary", "auth_status", "keep_alive", "prompt_suggestion":
	default:
		t.Unparsed(f, bounded(f.Data))
	}
}

// system reads a line about the session itself.
func (t *translator) system(f agent.Frame, l record, at time.Time) {
	if len(l.subtype) < 2 {
		t.Unparsed(f, bounded(f.Data))
		return
	}
	if l.noted() {
		t.owed(at)
		t.Emit(t.state.system(t.state.conversationOf(l), jsonscan.Text(l.uuid), "notice", jsonscan.Text(l.content), l, at)...)
		return
	}
	switch string(l.subtype[1 : len(l.subtype)-1]) {
	case "init":
		t.state.Begun = true
		t.worked()
		if model := jsonscan.Field(l.raw, "model"); len(model) > 2 {
			t.state.Model = jsonscan.Text(model)
		}
	case "session_state_changed":
		t.state.States = true
		if jsonscan.Is(jsonscan.Field(l.raw, "state"), "idle") {
			t.idle(at)
		}
	case "compact_boundary":
		t.owed(at)
		t.Emit(t.state.compacted(l, at)...)
	case "api_retry":
		t.owed(at)
		t.Emit(t.state.retried(l, string(jsonscan.Field(l.raw, "attempt")), string(jsonscan.Field(l.raw, "max_retries")),
			string(jsonscan.Field(l.raw, "error_status")), at)...)
		t.refused(int(number(jsonscan.Field(l.raw, "error_status"))))
	case "task_started":
		t.started(l, at)
	case "task_notification":
		t.notified(l, at)
	case "local_command":
		if words, ok := printed(jsonscan.Text(l.content)); ok {
			t.owed(at)
			t.Emit(t.state.commandOutput(conversation.Main, jsonscan.Text(l.uuid), words, l, at)...)
		}
	case "status", "thinking_tokens", "task_progress", "task_updated", "task_summary", "background_tasks_changed",
		"hook_started", "hook_progress", "hook_response", "files_persisted", "elicitation_complete",
		"permission_denied", "control_request_progress", "session_title_changed", "stop_hook_summary", "turn_duration",
		"turn_starting", "post_turn_summary", "notification", "commands_changed", "memory_saved", "memory_recall",
		"plugin_install", "vcs_state_changed", "session_metadata", "agents_killed", "worker_shutting_down":
	default:
		t.Unparsed(f, bounded(f.Data))
	}
}

// started reads the start of a subagent. Background commands start with the same line; they have no
// conversation.
func (t *translator) started(l record, at time.Time) {
	var a subagent
	var kind, prompt []byte
	jsonscan.Fields(l.raw, func(key, value []byte) {
		switch string(key) {
		case "task_id":
			a.ID = jsonscan.Text(value)
		case "tool_use_id":
			a.ToolUseID = jsonscan.Text(value)
		case "is_backgrounded":
			a.Background = jsonscan.IsTrue(value)
		case "task_type":
			kind = value
		case "prompt":
			prompt = value
		}
	})
	if !jsonscan.Is(kind, "local_agent") || a.ID == "" || a.ToolUseID == "" || t.state.agentOf(a.ToolUseID) != nil {
		return
	}
	t.Emit(t.state.enters(a, jsonscan.Text(prompt), at)...)
}

// notified reads the end of a background task. A foreground command has no output file.
func (t *translator) notified(l record, at time.Time) {
	var n notice
	file := ""
	jsonscan.Fields(l.raw, func(key, value []byte) {
		switch string(key) {
		case "task_id":
			n.task = jsonscan.Text(value)
		case "tool_use_id":
			n.toolUseID = jsonscan.Text(value)
		case "status":
			n.status = jsonscan.Text(value)
		case "summary":
			n.summary = jsonscan.Text(value)
		case "output_file":
			file = jsonscan.Text(value)
		}
	})
	if o := t.state.find(n.toolUseID); o != nil && o.Block.Type == conversation.ToolUse {
		return
	}
	if file == "" && t.state.find(n.toolUseID) == nil {
		return
	}
	t.Emit(t.state.notice(conversation.Main, n, l, at)...)
}

// user reads a line that a person or a tool sent to the model.
func (t *translator) user(l record, at time.Time) {
	where := t.state.conversationOf(l)
	if where != conversation.Main {
		t.Emit(t.state.user(l, at)...)
		return
	}
	id := jsonscan.Text(l.uuid)
	if l.isReplay && id == t.awaited() {
		t.state.Replayed = true
	}
	if l.isReplay {
		t.steered(id, true)
	}
	if slices.Contains(t.state.Shown, id) {
		return
	}
	if !l.isReplay {
		t.worked()
		t.owed(at)
		t.Emit(t.state.user(l, at)...)
		t.answered(l)
		return
	}
	repeated := len(l.at) == 0 && (t.state.Lifecycle || !t.state.Begun)
	if repeated && t.state.Expected.Find(id) != nil {
		return // written twice; the first one is about to be shown
	}
	t.shown(id)
	if repeated {
		return // already in the transcript, or a part of the next message
	}
	t.person(id, t.state.user(l, at))
}

// person shows a message that a person wrote, at its reserved position if there is one.
func (t *translator) person(id string, events []conversation.Event) {
	t.state.Owed = slices.DeleteFunc(t.state.Owed, func(o string) bool { return o == id })
	t.Settle(&t.state.Expected, id, true)
	for i := range events {
		switch d := events[i].Data.(type) {
		case conversation.BlockStart:
			if d.Block.ID == id && t.state.find(id) != nil {
				continue // its position is reserved
			}
			events[i].Data = conversation.BlockStart{Block: t.signed(d.Block)}
		case conversation.BlockComplete:
			if o := t.state.find(d.Block.ID); o != nil {
				t.state.forget(o)
			}
			events[i].Data = conversation.BlockComplete{Block: t.signed(d.Block)}
		}
		t.Emit(events[i])
	}
}

// signed adds the prompt id and the author to the block of the run's prompt, or of a prompt added
// to the run.
func (t *translator) signed(b conversation.Block) conversation.Block {
	if t.Run.RunID == "" || b.Type != conversation.UserMessage {
		return b
	}
	if b.ID == messageUUID(t.Run.RunID, 0) {
		b.PromptID, b.Author = t.Run.PromptID, t.Run.Author
	} else if p := t.state.Expected.Find(b.ID); p != nil {
		b.PromptID, b.Author = p.PromptID, p.Author
	}
	return b
}

func (t *translator) shown(id string) {
	if len(t.state.Shown) >= maxShown {
		t.state.Shown = slices.Delete(t.state.Shown, 0, 1)
	}
	t.state.Shown = append(t.state.Shown, id)
}

// owed reserves a position for each message that the agent is working on and has not repeated yet.
func (t *translator) owed(at time.Time) {
	for _, id := range t.state.Owed {
		t.state.kept(conversation.Main, id)
		t.Emit(t.state.start(&openBlock{Entry: ledger.Entry{Conversation: conversation.Main, Block: t.signed(conversation.Block{
			ID: id, Type: conversation.UserMessage, Status: conversation.Streaming, CreatedAt: at,
		})}}, at))
	}
	t.state.Owed = nil
}

// partial reads a piece of the main model's output. Pieces of subagents are not shown: their parts
// arrive complete.
func (t *translator) partial(l record, at time.Time) {
	if len(l.parent) > 0 && l.parent[0] == '"' {
		return
	}
	var e event
	jsonscan.Fields(l.event, e.set)
	switch {
	case jsonscan.Is(e.kind, "content_block_delta"):
		t.delta(e, at)
	case jsonscan.Is(e.kind, "message_start"):
		id := jsonscan.Text(jsonscan.Field(e.message, "id"))
		t.owed(at)
		if id != t.state.Writing {
			t.Emit(t.state.discard(conversation.Main, at)...)
		}
		t.Emit(t.state.release(conversation.Main, at)...)
		t.state.Writing, t.state.Part, t.state.Holding = id, 0, true
	case jsonscan.Is(e.kind, "content_block_start"):
		t.opened(e, at)
	case jsonscan.Is(e.kind, "content_block_stop"):
		t.closed(e, at)
	case jsonscan.Is(e.kind, "message_stop"):
		from := 0
		if abandoned := jsonscan.Field(l.raw, "abandoned_blocks"); len(abandoned) > 0 {
			from, _ = strconv.Atoi(string(jsonscan.Field(abandoned, "from_block_index")))
		}
		t.Emit(t.state.discardFrom(conversation.Main, from, at)...)
		t.state.Holding = false
		t.Emit(t.state.release(conversation.Main, at)...)
	}
}

// event is the body of a stream_event: an event of the model's own stream.
type event struct {
	kind, index, delta, block, message []byte
}

func (e *event) set(key, value []byte) {
	switch string(key) {
	case "type":
		e.kind = value
	case "index":
		e.index = value
	case "delta":
		e.delta = value
	case "content_block":
		e.block = value
	case "message":
		e.message = value
	}
}

// opened reads the start of a part.
func (t *translator) opened(e event, at time.Time) {
	index, err := strconv.Atoi(string(e.index))
	if err != nil || t.state.Writing == "" || t.state.written(t.state.Writing, index) != nil {
		return
	}
	if len(t.state.writing) >= maxWriting {
		return
	}
	t.state.Part = index + 1
	p := decodePart(e.block)
	o := &openBlock{
		Message: t.state.Writing, Index: index,
		Entry: ledger.Entry{
			Conversation: conversation.Main, Block: conversation.Block{ID: partID(t.state.Writing, index), Status: conversation.Streaming},
		},
	}
	switch {
	case jsonscan.Is(p.kind, "text"):
		o.Block.Type, o.Text = conversation.AssistantText, []byte(jsonscan.Text(p.text))
	case jsonscan.Is(p.kind, "thinking"), jsonscan.Is(p.kind, "redacted_thinking"):
		o.Block.Type, o.Text = conversation.Thinking, []byte(jsonscan.Text(p.text))
	case p.isTool():
		o.Block = toolBlock(jsonscan.Text(p.id), jsonscan.Text(p.name))
	default:
		return
	}
	o.Block.CreatedAt = at
	if t.state.find(o.Block.ID) != nil {
		return
	}
	t.worked()
	t.owed(at)
	t.Emit(t.state.summarized(conversation.Main, at)...)
	t.Emit(t.state.start(o, at))
}

// closed removes a text without words, because the agent does not report it.
func (t *translator) closed(e event, at time.Time) {
	index, err := strconv.Atoi(string(e.index))
	if err != nil {
		return
	}
	o := t.state.written(t.state.Writing, index)
	if o != nil && o.Block.Type == conversation.AssistantText && !o.Long && len(bytes.TrimSpace(o.Text)) == 0 {
		t.Emit(t.state.remove(o, at))
	}
}

// delta reads more of a part. The input of a call is shown when it is complete.
func (t *translator) delta(e event, at time.Time) {
	var kind, words []byte
	jsonscan.Fields(e.delta, func(key, value []byte) {
		switch string(key) {
		case "type":
			kind = value
		case "text", "thinking":
			words = value
		}
	})
	if !jsonscan.Is(kind, "text_delta") && !jsonscan.Is(kind, "thinking_delta") {
		return
	}
	index, err := strconv.Atoi(string(e.index))
	if err != nil {
		return
	}
	o := t.state.written(t.state.Writing, index)
	if o == nil || (o.Block.Type != conversation.AssistantText && o.Block.Type != conversation.Thinking) {
		return
	}
	delta := jsonscan.Text(words)
	if delta == "" {
		return
	}
	if o.Long {
		t.Unchanged()
	} else {
		o.say(delta)
	}
	t.Emit(o.Delta(delta, at))
}

// mirror reads lines of the transcript, which arrive a little later than the stream. It uses only
// titles, and messages of people that the agent has not repeated.
func (t *translator) mirror(l record, at time.Time) {
	jsonscan.Elements(l.body, func(raw []byte) {
		e, ok := decode(raw)
		switch {
		case !ok:
		case jsonscan.Is(e.kind, "user") && t.state.conversationOf(e) == conversation.Main && !e.isSummary:
			t.mirrored(e, at)
		case jsonscan.Is(e.kind, "attachment"):
			t.mirrored(queued(e), at)
		case jsonscan.Is(e.kind, "ai-title"), jsonscan.Is(e.kind, "custom-title"):
			t.title(raw, at)
		}
	})
}

// mirrored shows a message of a person that the stream has not shown.
func (t *translator) mirrored(l record, at time.Time) {
	id := jsonscan.Text(l.uuid)
	if id == "" || l.isMeta || l.notice || slices.Contains(t.state.Shown, id) {
		return
	}
	m := decodeMessage(l.message)
	results := false
	jsonscan.Elements(m.content, func(raw []byte) { results = results || decodePart(raw).isResult() })
	s := words(m.content)
	if _, out := printed(s); results || out || s == "" || opens(s, noticeTag) || interrupts(s) {
		return
	}
	t.shown(id)
	t.person(id, t.state.words(conversation.Main, id, s, l, at))
}

func (t *translator) title(raw []byte, at time.Time) {
	for _, name := range []string{"aiTitle", "customTitle", "title"} {
		if title := jsonscan.Text(jsonscan.Field(raw, name)); title != "" {
			t.Emit(conversation.Event{
				Type: conversation.EventTitle, At: at, Data: conversation.Title{Title: title},
			})
			return
		}
	}
}

// queued returns the user line of a message that a person wrote while the agent was working. For
// any other attachment, the record has no uuid.
func queued(l record) record {
	if !jsonscan.Is(jsonscan.Field(l.body, "type"), "queued_command") {
		return record{}
	}
	q := record{raw: l.raw, kind: []byte(`"user"`), uuid: l.uuid, at: l.at, agent: l.agent}
	jsonscan.Fields(l.body, func(key, value []byte) {
		switch string(key) {
		case "source_uuid":
			if len(value) > 2 {
				q.uuid = value
			}
		case "commandMode":
			q.notice = jsonscan.Is(value, "task-notification")
		case "isMeta":
			q.isMeta = jsonscan.IsTrue(value)
		case "prompt":
			q.message = slices.Concat([]byte(`{"content":`), value, []byte(`}`))
		}
	})
	return q
}
