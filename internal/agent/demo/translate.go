package demo

import (
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/demo/demoformat"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/agent/translate"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// maxRaw bounds what is kept of a line that was not understood, and of stderr in a crash's message.
const maxRaw = 1 << 10

// reasonDelivered: the agent had the prompt before, and died on it: what it did is unknown.
const reasonDelivered = "already_delivered"

// translator reads the lines of one run, or those of one transcript file. It keeps the blocks that
// are open, whole, because closing a block shows it whole; the agent keeps them small.
type translator struct {
	translate.Turn
	state state
}

// stateVersion is the version of the state's encoding.
const stateVersion = 1

type state struct {
	ledger.Ledger[*ledger.Entry]
	Waiting []string         `json:"waiting,omitempty"` // ids of questions
	Usage   demoformat.Usage `json:"usage"`
	Model   string           `json:"model,omitempty"`
	Ended   bool             `json:"ended,omitempty"`
	// Expected are the prompts that the running turn is given, and Ending is its end, while one of them is on its way.
	Expected translate.Expected `json:"expected,omitempty"`
	Ending   *ending            `json:"ending,omitempty"`
}

type ending struct {
	Outcome session.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
}

var _ agent.Expecter = (*translator)(nil)

// Expect notes a prompt for the running turn.
func (t *translator) Expect(s agent.Steered) (waits bool) {
	return t.state.Expected.Add(steerUUID(t.Run.RunID, s.PromptID), s)
}

// NewTranslator starts a run, or resumes from a state.
func (Adapter) NewTranslator(run agent.RunContext, from []byte) (agent.Translator, error) {
	t := &translator{Turn: translate.Turn{Run: run}}
	if err := t.Restore("demo", from, stateVersion, &t.state); err != nil {
		return nil, err
	}
	return t, nil
}

// State returns the state from which a later translator resumes.
func (t *translator) State() ([]byte, error) { return agent.EncodeState(stateVersion, t.state) }

// Translate translates one frame.
func (t *translator) Translate(f agent.Frame) (agent.Translation, error) {
	return t.Read(f, t.state.Ended, t.stdout, t.exit), nil
}

// Cut closes what is open, the innermost first: a subagent ends before its block.
func (t *translator) Cut(at time.Time) []conversation.Event {
	var events []conversation.Event
	for open := &t.state.Open; len(*open) > 0; {
		events = append(events, t.state.Close((*open)[len(*open)-1], conversation.Aborted, at.UTC()))
	}
	return events
}

func (t *translator) stdout(f agent.Frame) {
	l, ok := demoformat.DecodeLine(f.Data)
	switch {
	case !ok:
		t.Unparsed(f, bounded(f.Data))
	case l.RunID == "" || t.Mine(l.RunID): // otherwise it is the tail of a turn that is over
		t.read(l, f.At)
	}
}

// read says what one line means, in the stream and in a transcript alike. Blocks have the time
// that the agent gave them, events that of their frame.
func (t *translator) read(l demoformat.Line, at time.Time) {
	if l.At.IsZero() {
		l.At = at
	}
	l.At = l.At.UTC()
	if l.Usage != nil {
		t.state.Usage = *l.Usage
	}
	where := conversationOf(l)
	switch l.Type {
	case demoformat.LineInit:
		t.state.Model = l.Model
	case demoformat.LineUser:
		t.Emit(ledger.Whole(where, conversation.Block{
			ID: l.UUID, Type: conversation.UserMessage, Status: conversation.Complete, CreatedAt: l.At,
			Content: l.Content, PromptID: l.PromptID, Author: l.Author,
		}, at)...)
		t.settled(l.UUID, true, at)
	case demoformat.LineDeclined:
		t.settled(l.UUID, false, at)
	case demoformat.LineStart:
		t.open(where, textBlock(l), at)
	case demoformat.LineDelta:
		t.delta(l, at)
	case demoformat.LineAssistant:
		t.assistant(l, at)
	case demoformat.LineToolUse:
		t.open(where, toolBlock(l), at)
	case demoformat.LineToolRunning:
		if o := t.state.Find(l.UUID); o != nil {
			o.Block.Status = conversation.Running
			t.Emit(o.Updated(conversation.Updates{Status: conversation.Running}, at))
		}
	case demoformat.LineToolResult:
		t.toolResult(l, at)
	case demoformat.LineQuestion:
		t.Ask(&t.state.Waiting, agent.Question{
			ID: l.UUID, Kind: agent.QuestionKind(l.Kind), ToolName: l.Name, ToolUseID: l.ToolUseID, Input: l.Input,
			Title: l.Content, Inquiries: l.Inquiries,
		})
	case demoformat.LineAnswered:
		t.Resolve(&t.state.Waiting, l.UUID)
	case demoformat.LineSystem:
		t.Emit(ledger.Whole(where, conversation.Block{
			ID: l.UUID, Type: conversation.System, Status: conversation.Complete, CreatedAt: l.At, Subtype: l.Subtype, Message: l.Content,
		}, at)...)
	case demoformat.LineTitle:
		t.Emit(conversation.Event{Type: conversation.EventTitle, At: at, Data: conversation.Title{Title: l.Content}})
	case demoformat.LineResult:
		t.ends(session.Outcome(l.Outcome), l.Reason, at)
	case demoformat.LineAcknowledged:
		if l.Outcome == "" {
			l.Outcome, l.Reason = string(session.OutcomeUnknown), reasonDelivered
		}
		t.ends(session.Outcome(l.Outcome), l.Reason, at)
	}
}

func (t *translator) exit(f agent.Frame) {
	end, events := agent.ReadExit(f, maxRaw)
	t.end(end.Outcome, end.Reason, f.At)
	t.Emit(events...)
}

// settled notes what the agent has done with a prompt for the running turn, which may be what its end has waited for.
func (t *translator) settled(id string, taken bool, at time.Time) {
	t.Settle(&t.state.Expected, id, taken)
	if e := t.state.Ending; e != nil {
		t.ends(e.Outcome, e.Reason, at)
	}
}

// ends ends the turn once no prompt for it is on its way.
func (t *translator) ends(outcome session.Outcome, reason string, at time.Time) {
	if t.state.Expected.Wait() {
		t.state.Ending = &ending{Outcome: outcome, Reason: reason}
		return
	}
	t.state.Ending = nil
	t.end(outcome, reason, at)
}

// end closes what is open and ends the turn.
func (t *translator) end(outcome session.Outcome, reason string, at time.Time) {
	u := usage.Usage{InputTokens: t.state.Usage.Input, OutputTokens: t.state.Usage.Output, ToolCalls: t.state.Usage.ToolCalls}
	t.Emit(t.Cut(at)...)
	t.Emit(translate.Usage(u, t.state.Model, at))
	t.Out.Resolved, t.state.Waiting = t.state.Waiting, nil
	t.Out.End = &agent.TurnEnd{Outcome: outcome, Reason: reason, Usage: u, Model: t.state.Model}
	t.state.Ended = true
}

// open begins a block that later lines continue.
func (t *translator) open(where string, b conversation.Block, at time.Time) *ledger.Entry {
	o := t.state.Find(b.ID)
	if o == nil {
		o = &ledger.Entry{Conversation: where, Block: b}
		t.state.Open = append(t.state.Open, o)
		t.Emit(o.Started(at))
	}
	return o
}

func (t *translator) delta(l demoformat.Line, at time.Time) {
	if o := t.state.Find(l.UUID); o != nil {
		o.Block.Content = string(conversation.AppendText([]byte(o.Block.Content), l.Content))
		t.Emit(o.Delta(l.Content, at))
	}
}

// assistant closes a text block. Its content counts, not the deltas before it.
func (t *translator) assistant(l demoformat.Line, at time.Time) {
	o := t.open(conversationOf(l), textBlock(l), at) // where its start is missing
	o.Block.Content = l.Content
	status := conversation.Complete
	if l.Aborted {
		status = conversation.Aborted
	}
	t.Emit(t.state.Close(o, status, at))
}

func (t *translator) toolResult(l demoformat.Line, at time.Time) {
	status := conversation.Success
	switch {
	case l.Aborted:
		status = conversation.Aborted
	case l.IsError:
		status = conversation.Failed
	}
	if o := t.state.Find(l.ToolUseID); o != nil {
		t.Emit(t.state.Close(o, status, at))
	}
	var images []conversation.ImageData
	for _, data := range l.Images[:min(len(l.Images), conversation.MaxBlockImages)] {
		if i, ok := conversation.NewImage(data); ok {
			images = append(images, i)
		}
	}
	t.Picture(images)
	t.Emit(ledger.Whole(conversationOf(l), conversation.Block{
		ID: l.UUID, Type: conversation.ToolResult, Status: status, CreatedAt: l.At,
		ToolUseID: l.ToolUseID, Output: l.Output, IsError: l.IsError, Images: conversation.References(images),
	}, at)...)
}

func textBlock(l demoformat.Line) conversation.Block {
	b := conversation.Block{ID: l.UUID, Type: conversation.AssistantText, Status: conversation.Streaming, CreatedAt: l.At}
	if l.Kind == demoformat.KindThinking {
		b.Type = conversation.Thinking
	}
	return b
}

func toolBlock(l demoformat.Line) conversation.Block {
	b := conversation.Block{ID: l.UUID, Status: conversation.Pending, CreatedAt: l.At, Name: l.Name, Input: l.Input}
	if l.Subagent != "" {
		b.Type, b.SubagentID = conversation.Subagent, l.Subagent
	} else {
		b.Type, b.ToolUseID = conversation.ToolUse, l.UUID
	}
	return b
}

func conversationOf(l demoformat.Line) string {
	if l.Agent == "" {
		return conversation.Main
	}
	return l.Agent
}

// bounded is at most maxRaw bytes of data as text.
func bounded(data []byte) string {
	return strings.ToValidUTF8(string(data[:min(len(data), maxRaw)]), "\uFFFD")
}
