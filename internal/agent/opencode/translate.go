package opencode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/agent/translate"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// translator translates the frames of one run.
type translator struct {
	translate.Turn
	state state
}

// stateVersion is the version of the state's encoding.
const stateVersion = 1

type state struct {
	work
	turn
	// Root is the session of the main conversation. Until it is known, Children are the sessions
	// that cannot be the main one.
	Root     string   `json:"root,omitempty"`
	Children []string `json:"children,omitempty"`
	Title    string   `json:"title,omitempty"`
	// Waiting are the open questions.
	Waiting []string `json:"waiting,omitempty"`
	// Expected are the prompts added to the running turn, by the end of their message ids.
	Expected translate.Expected `json:"expected,omitempty"`
	// Retry is the id of the block that reports a retry; Retries counts them.
	Retry   string `json:"retry,omitempty"`
	Retries int    `json:"retries,omitempty"`
}

const maxChildren = 64

// NewTranslator starts a run, or resumes from a state. Without a run id it translates a recording.
func (Adapter) NewTranslator(run agent.RunContext, from []byte) (agent.Translator, error) {
	if run.RunID == "" {
		return newRecording(from)
	}
	t := &translator{Turn: translate.Turn{Run: run}}
	if err := t.Restore("opencode", from, stateVersion, &t.state); err != nil {
		return nil, err
	}
	return t, nil
}

// State returns the state from which a later translator resumes.
func (t *translator) State() ([]byte, error) { return agent.EncodeState(stateVersion, &t.state) }

var _ agent.Expecter = (*translator)(nil)

// Expect registers a prompt for the running turn.
func (t *translator) Expect(s agent.Steered) (waits bool) {
	return t.state.Expected.Add(opencodeformat.SteerMark(t.Run.RunID, s.PromptID), s)
}

// Translate translates one frame.
func (t *translator) Translate(f agent.Frame) (agent.Translation, error) {
	return t.Read(f, t.state.Ended, t.line, t.exit), nil
}

// Cut aborts the open blocks.
func (t *translator) Cut(at time.Time) []conversation.Event { return t.state.Cut(at.UTC()) }

// line reads a line: an event of the server, or a note of the bridge.
func (t *translator) line(f agent.Frame) {
	data := bytes.TrimSpace(f.Data)
	if note, ok := stdio.ParseNote(data); ok {
		t.note(note, f.At)
		return
	}
	if e, ok := opened(data); !ok || !t.event(e, f.At) {
		t.unparsed(f, data)
	}
}

func (t *translator) unparsed(f agent.Frame, data []byte) {
	t.Unparsed(f, opencodeformat.Bounded(string(data), opencodeformat.MaxWords))
}

// The form in which the server encodes its events.
var (
	eventStart      = []byte(`{"id":"`)
	eventType       = []byte(`","type":"`)
	eventProperties = []byte(`","properties":`)
	eventEnd        = []byte(`}`)
)

// maxHead bounds the prefix of an event in which its properties are searched.
const maxHead = 256

// opened decodes the outermost level of an event. If the event has the server's usual form, its
// properties are not scanned yet.
func opened(data []byte) (envelope, bool) {
	head, ok := bytes.CutPrefix(data[:min(len(data), maxHead)], eventStart)
	if ok {
		id, rest, ok := bytes.Cut(head, eventType)
		kind, _, found := bytes.Cut(rest, eventProperties)
		if ok && found && plain(id) && plain(kind) && bytes.HasSuffix(data, eventEnd) {
			from := len(eventStart) + len(id) + len(eventType) + len(kind) + len(eventProperties)
			return envelope{Type: string(kind), Properties: data[from : len(data)-1]}, len(kind) > 0
		}
	}
	var e envelope
	if json.Unmarshal(data, &e) != nil {
		return envelope{}, false
	}
	return e, e.Type != ""
}

// plain reports whether a string contains no character that JSON may escape.
func plain(s []byte) bool {
	return bytes.IndexFunc(s, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' || r == '{' || r == '}' }) < 0
}

// silent lists events that do not affect a conversation. The part before the dot names the kind.
var silent = []string{
	"server", "plugin", "catalog", "reference", "integration", "file", "lsp", "mcp", "todo", "vcs", "pty", "project",
	"installation", "models-dev", "command", "tui", "workspace", "worktree", "global", "storage", "ide",
}

// event reads an event and reports whether it is known.
func (t *translator) event(e envelope, at time.Time) bool {
	switch e.Type {
	case "message.part.delta":
		return decoded(e, at, t.delta)
	case "message.part.updated":
		return decoded(e, at, t.updated)
	case "message.part.removed":
		return decoded(e, at, t.partRemoved)
	case "message.updated":
		return decoded(e, at, t.message)
	case "session.created", "session.updated":
		return decoded(e, at, t.sessionInfo)
	case "session.status":
		return decoded(e, at, t.status)
	case "session.error":
		return decoded(e, at, t.sessionError)
	case "permission.asked":
		return decoded(e, at, t.permissionAsked)
	case "question.asked":
		return decoded(e, at, t.questionAsked)
	case "permission.replied", "question.replied", "question.rejected":
		return decoded(e, at, t.answered)
	}
	kind, rest, _ := strings.Cut(e.Type, ".")
	switch kind {
	case "session":
		return slices.Contains([]string{"diff", "deleted", "compacted", "idle"}, rest) || strings.HasPrefix(rest, "next.")
	case "message":
		return rest == "part.patched" || rest == "removed"
	case "permission", "question":
		return true // a repetition in the form of a newer interface
	}
	return slices.Contains(silent, kind)
}

// decoded decodes the properties of an event and passes them on.
func decoded[T any](e envelope, at time.Time, read func(T, time.Time)) bool {
	var properties T
	if len(e.Properties) == 0 || json.Unmarshal(e.Properties, &properties) != nil {
		return false
	}
	read(properties, at)
	return true
}

// conversationOf returns the conversation of a session. The first session without a parent is the
// main one.
func (t *translator) conversationOf(id string) string {
	if t.state.Root == "" && !slices.Contains(t.state.Children, id) {
		t.state.Root = id
	}
	if id == t.state.Root {
		return conversation.Main
	}
	return id
}

func (t *translator) sessionInfo(e opencodeformat.SessionEvent, at time.Time) {
	if e.Info.ID == "" {
		return
	}
	if e.Info.ParentID != "" {
		if t.state.Root == "" && !slices.Contains(t.state.Children, e.Info.ID) && len(t.state.Children) < maxChildren {
			t.state.Children = append(t.state.Children, e.Info.ID)
		}
		return
	}
	if t.state.Root != "" && e.Info.ID != t.state.Root {
		return
	}
	title := opencodeformat.Bounded(e.Info.Title, maxTitle)
	if title == t.state.Title || isDefaultTitle(title) {
		return
	}
	t.state.Title = title
	t.Emit(conversation.Event{Type: conversation.EventTitle, At: at, Data: conversation.Title{Title: title}})
}

// maxTitle bounds the length of a title.
const maxTitle = 256

// isDefaultTitle reports whether a title is the placeholder of a session that has no name yet.
func isDefaultTitle(title string) bool {
	return title == "" || strings.HasPrefix(title, "New session - ") || strings.HasPrefix(title, "Child session - ")
}

type messageEvent struct {
	Info opencodeformat.Message `json:"info"`
}

// message reads a change of a message.
func (t *translator) message(e messageEvent, at time.Time) {
	in := &e.Info
	if in.ID == "" || in.SessionID == "" {
		return
	}
	m := t.state.message(in.ID)
	if m == nil {
		if !t.isNew(in) {
			return
		}
		m = t.begins(in)
	}
	t.changed(m, in, at)
}

// begins adds a message.
func (t *translator) begins(in *opencodeformat.Message) *openMessage {
	m := &openMessage{
		ID: in.ID, Session: in.SessionID, Conversation: t.conversationOf(in.SessionID),
		User: in.FromUser(), Summary: isSummary(in), Created: createdAt(in),
	}
	t.state.begin(m)
	if m.Conversation == conversation.Main {
		t.state.Errored = nil // the agent has recovered from the error
	}
	return m
}

// changed reads the current state of a message.
func (t *translator) changed(m *openMessage, in *opencodeformat.Message, at time.Time) {
	if m.User {
		return
	}
	m.Summary = isSummary(in)
	if model := modelOf(in); model != "" && m.Conversation == conversation.Main {
		t.state.Model = opencodeformat.Bounded(model, maxTitle)
	}
	if in.Error != nil {
		t.failed(m, in.Error, at)
	}
	if in.Time.Completed != 0 {
		t.Emit(t.state.settle(m, m.fate(), at)...)
		m.Ended = true
	}
}

// isNew reports whether an unknown message belongs to this turn. The agent may send updates of old
// messages later, and may send all of a new one at once, because an event has the state at the time
// of its encoding.
func (t *translator) isNew(in *opencodeformat.Message) bool {
	switch {
	case !in.FromUser() && in.Role != "assistant":
		return false
	case t.state.Noted:
		return in.ID > t.state.Before || opencodeformat.IsMessageOf(in.ID, t.Run.RunID)
	case in.FromUser():
		return len(in.Summary) == 0 || string(in.Summary) == "null" // otherwise it is an update of an old prompt with its summary
	case in.Time.Completed == 0 && in.Error == nil:
		return true
	}
	return t.state.message(in.ParentID) != nil
}

// failed reads the failure of an answer, and shows it once.
func (t *translator) failed(m *openMessage, e *opencodeformat.NativeError, at time.Time) {
	m.Failed = true
	if m.Reported || e.Name == opencodeformat.Aborted {
		return
	}
	m.Reported = true
	t.Emit(ledger.Whole(m.Conversation, failureOf(m.native(), e), at)...)
}

type partEvent struct {
	Part opencodeformat.Part `json:"part"`
}

// updated reads the current state of a part.
func (t *translator) updated(e partEvent, at time.Time) {
	if m := t.state.message(e.Part.MessageID); m != nil && e.Part.ID != "" {
		t.part(m, &e.Part, at)
	}
}

// part reads the current state of a part of a message.
func (t *translator) part(m *openMessage, p *opencodeformat.Part, at time.Time) {
	t.progressed(at)
	isNew := m.saw(p.ID)
	if isNew && !m.User {
		t.Emit(t.state.settle(m, conversation.Complete, at)...)
	}
	o := t.state.Find(p.ID)
	if o == nil && !isNew {
		return // it has ended
	}
	native := m.native()
	switch {
	case p.Type == partStepStart && isNew:
		t.Emit(t.state.abandon(m, at)...)
	case p.Type == partStepFinish && isNew:
		t.countUsage(p, at)
	case !isShown(p, native):
	case m.User:
		b := headOf(p, native)
		b.Status = conversation.Complete
		setText(&b, p.Text)
		t.Emit(ledger.Whole(m.Conversation, t.signed(b, m), at)...)
	case isText(p):
		t.text(m, native, p, o, at)
	default:
		t.call(m, native, p, o, at)
	}
}

// signed adds the prompt id and the author to the block of the run's prompt, or of a prompt added
// to the run. The bridge prints the message of such a prompt when the agent accepts it.
func (t *translator) signed(b conversation.Block, m *openMessage) conversation.Block {
	if opencodeformat.IsMessageOf(m.ID, t.Run.RunID) {
		b.PromptID, b.Author = t.Run.PromptID, t.Run.Author
	} else if p := t.state.Expected.Find(opencodeformat.MarkOf(m.ID)); p != nil {
		b.PromptID, b.Author = p.PromptID, p.Author
		t.Settle(&t.state.Expected, p.ID, true)
	}
	return b
}

// text reads a text of the model: empty at first, complete at the end.
func (t *translator) text(m *openMessage, native *opencodeformat.Message, p *opencodeformat.Part, o *openBlock, at time.Time) {
	if o == nil {
		o = &openBlock{Message: m.ID, Entry: ledger.Entry{Conversation: m.Conversation, Block: headOf(p, native)}}
		t.Emit(t.state.Start(o, at)...)
	}
	if !isEnded(p) { // its content so far also arrives in pieces
		return
	}
	if m.Last == p.ID && len(p.Text) <= ledger.MaxKept {
		// It may yet turn out to be aborted.
		o.Text, o.Whole, o.Cut = []byte(p.Text), true, false
		return
	}
	b := o.Block
	setText(&b, p.Text)
	b.Status = conversation.Complete
	t.Emit(t.state.Settle(o, b, at))
}

// appendText shows more of a text. The text of a compaction is shown when it is complete.
func (t *translator) appendText(o *openBlock, delta string, at time.Time) {
	t.state.append(o, delta)
	if o.Block.Type == conversation.System {
		return
	}
	t.Emit(o.Delta(delta, at))
}

type deltaEvent struct {
	PartID string `json:"partID"`
	Field  string `json:"field"`
	Delta  string `json:"delta"`
}

func (t *translator) delta(e deltaEvent, at time.Time) {
	o := t.state.Find(e.PartID)
	if o == nil || o.Whole || e.Field != "text" || e.Delta == "" || o.Call != "" || o.Block.Type == conversation.ToolResult {
		return
	}
	t.progressed(at)
	t.appendText(o, e.Delta, at)
}

// call reads the state of a call. Its result is placed directly after it from the start, so that
// results of parallel calls have the same positions as in the transcript.
func (t *translator) call(m *openMessage, native *opencodeformat.Message, p *opencodeformat.Part, o *openBlock, at time.Time) {
	if o == nil {
		o = &openBlock{Message: m.ID, Call: p.CallID, Entry: ledger.Entry{Conversation: m.Conversation, Block: headOf(p, native)}}
		t.Emit(t.state.Start(o, at)...)
		t.Emit(t.state.Start(&openBlock{Message: m.ID, Entry: ledger.Entry{Conversation: m.Conversation, Block: conversation.Block{
			ID: resultID(p.ID), Type: conversation.ToolResult, Status: conversation.Pending, CreatedAt: o.Block.CreatedAt, ToolUseID: p.ID,
		}}}, at)...)
		t.state.ToolCalls++
	}
	now := headOf(p, native) // a call of an unknown tool gets another name
	setCall(p, &now)
	result := t.state.Find(resultID(p.ID))
	status, ended := callOutcome(p.State)
	if !ended {
		if p.State.Status == callRunning {
			t.running(o, now, at)
		}
		t.printed(result, p.State, at)
		return
	}
	now.Status = status
	t.Emit(t.state.Settle(o, now, at))
	if result != nil {
		images := p.State.Images()
		t.Picture(images)
		t.Emit(t.state.Settle(result, resultOf(p, now, status, images), at))
	}
}

// running shows the changes of a running call.
func (t *translator) running(o *openBlock, now conversation.Block, at time.Time) {
	var u conversation.Updates
	if o.Block.Status != conversation.Running {
		u.Status, u.Input = conversation.Running, now.Input
		t.state.keep(o, now.Input)
		o.Block.Status = conversation.Running
	}
	if now.Name != o.Block.Name {
		u.Name, o.Block.Name = now.Name, now.Name
	}
	if now.SubagentID != o.Block.SubagentID {
		u.SubagentID, o.Block.SubagentID = now.SubagentID, now.SubagentID
	}
	if u.Status != "" || u.Name != "" || u.SubagentID != "" {
		t.Emit(o.Updated(u, at))
	}
}

// printed shows the output of a running call. The agent repeats all of it each time, so output is
// shown only when it has grown considerably; otherwise the log would grow quadratically.
func (t *translator) printed(result *openBlock, s *opencodeformat.ToolState, at time.Time) {
	if result == nil {
		return
	}
	output := rawText(metadataOf(s).Output)
	if len(output) == 0 || len(output)-result.Printed < max(1, result.Printed/4) {
		return
	}
	result.Printed = len(output)
	encoded, err := json.Marshal(output)
	if err != nil {
		return // strings can always be encoded
	}
	t.Emit(result.Updated(conversation.Updates{Output: encoded}, at))
}

type removedEvent struct {
	PartID string `json:"partID"`
}

// partRemoved reads the removal of a part that is still open, and removes its blocks.
func (t *translator) partRemoved(e removedEvent, at time.Time) {
	for _, id := range []string{e.PartID, resultID(e.PartID)} {
		if o := t.state.Find(id); o != nil {
			t.Emit(t.state.Remove(o, at))
		}
	}
}

type statusEvent struct {
	SessionID string `json:"sessionID"`
	Status    struct {
		Type    string  `json:"type"`
		Attempt float64 `json:"attempt"`
		Message string  `json:"message"`
	} `json:"status"`
}

// status reads the failure of an attempt, or the start of the next one.
func (t *translator) status(e statusEvent, at time.Time) {
	switch e.Status.Type {
	case "retry":
		t.retries(e, at)
	case "busy":
		t.tries(e.SessionID, at)
	}
}

// tries reads the start of the next attempt after a failed one. The agent then drops the output of
// the failed attempt, which the next attempt may never replace.
func (t *translator) tries(sessionID string, at time.Time) {
	if t.state.Retry == "" {
		return
	}
	where := t.conversationOf(sessionID)
	if o := t.state.Find(t.state.Retry); o == nil || o.Conversation != where {
		return
	}
	if m := t.state.newest(where); m != nil {
		t.Emit(t.state.abandon(m, at)...)
	}
}

// retries shows that the agent is about to retry, until the retry succeeds. The transcript does not
// contain this.
func (t *translator) retries(e statusEvent, at time.Time) {
	t.progressed(at)
	t.state.Retries++
	t.state.Retry = fmt.Sprintf("retry/%s/%d", t.Run.RunID, t.state.Retries)
	t.Emit(t.state.Start(&openBlock{Entry: ledger.Entry{Conversation: t.conversationOf(e.SessionID), Block: conversation.Block{
		ID: t.state.Retry, Type: conversation.System, Status: conversation.Streaming, CreatedAt: at, Subtype: subtypeRetry,
		Message: opencodeformat.Bounded(fmt.Sprintf("attempt %d failed: %s", int64(e.Status.Attempt), e.Status.Message), opencodeformat.MaxWords),
	}}}, at)...)
}

// progressed removes the block of a retry, because the attempt has succeeded.
func (t *translator) progressed(at time.Time) {
	if t.state.Retry == "" {
		return
	}
	if o := t.state.Find(t.state.Retry); o != nil {
		t.Emit(t.state.Remove(o, at))
	}
	t.state.Retry = ""
}

// countUsage adds the usage of an answer.
func (t *translator) countUsage(p *opencodeformat.Part, at time.Time) {
	u, n := &t.state.Usage, tokensOf(p)
	u.InputTokens += int64(min(n.Input+n.Cache.Read+n.Cache.Write, usage.MaxTurnCount))
	u.OutputTokens += int64(min(n.Output+n.Reasoning, usage.MaxTurnCount))
	u.CostUSD += costOf(p)
	*u = u.Bounded()
	t.Emit(translate.Usage(t.state.Usage, t.state.Model, at))
}
