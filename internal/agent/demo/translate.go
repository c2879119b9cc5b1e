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

// maxRaw bounds how much is kept of an unparsed line, and of stderr in a crash's message.
const maxRaw = 1 << 10

// reasonDelivered: the agent had received the prompt before and died during it, so its effects are
// unknown.
const reasonDelivered = "already_delivered"

// translator translates the frames of one run, or the lines of one transcript file.
type translator struct {
	translate.Turn
	state state
}

// stateVersion is the version of the state's encoding.
const stateVersion = 1

type state struct {
	ledger.Ledger[*openBlock]
	Waiting []string         `json:"waiting,omitempty"` // ids of questions
	Usage   demoformat.Usage `json:"usage"`
	Model   string           `json:"model,omitempty"`
	Ended   bool             `json:"ended,omitempty"`
	// Expected are the prompts added to the running turn. Ending is the end of the turn while one
	// of them is pending.
	Expected translate.Expected `json:"expected,omitempty"`
	Ending   *ending            `json:"ending,omitempty"`
}

// openBlock is an open block. Its content is used only if the agent does not report the complete
// text.
type openBlock struct {
	ledger.Entry
	Long bool `json:"long,omitempty"` // the deltas exceed ledger.MaxText and are not kept
}

// Closed completes the block, or only changes its status if its complete content is unknown.
func (o *openBlock) Closed(status conversation.BlockStatus, at time.Time) conversation.Event {
	if o.Long {
		return o.Updated(conversation.Updates{Status: status}, at)
	}
	return o.Entry.Closed(status, at)
}

type ending struct {
	Outcome session.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
}

var _ agent.Expecter = (*translator)(nil)

// Expect registers a prompt for the running turn.
func (t *translator) Expect(s agent.Steered) (waits bool) {
	t.Changed()
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
func (t *translator) State() ([]byte, error) { return t.Turn.State(stateVersion, &t.state) }

// Translate translates one frame.
func (t *translator) Translate(f agent.Frame) (agent.Translation, error) {
	return t.Read(f, t.state.Ended, t.stdout, t.exit), nil
}

// Cut aborts the open blocks, innermost first: a subagent ends before its block.
func (t *translator) Cut(at time.Time) []conversation.Event {
	t.Changed()
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
	case l.RunID == "" || t.IsRun(l.RunID): // otherwise it belongs to an earlier turn
		t.read(l, f.At)
	}
}

// read translates one line of the stream or a transcript. Blocks have the agent's time, and events
// have the time of their frame.
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

// settled records whether the agent has taken a prompt for the running turn. The end of the turn
// may have waited for this.
func (t *translator) settled(id string, taken bool, at time.Time) {
	t.Settle(&t.state.Expected, id, taken)
	if e := t.state.Ending; e != nil {
		t.ends(e.Outcome, e.Reason, at)
	}
}

// ends ends the turn as soon as no added prompt is pending.
func (t *translator) ends(outcome session.Outcome, reason string, at time.Time) {
	if t.state.Expected.Wait() {
		t.state.Ending = &ending{Outcome: outcome, Reason: reason}
		return
	}
	t.state.Ending = nil
	t.end(outcome, reason, at)
}

// end closes the open blocks and ends the turn.
func (t *translator) end(outcome session.Outcome, reason string, at time.Time) {
	u := usage.Usage{InputTokens: t.state.Usage.Input, OutputTokens: t.state.Usage.Output, ToolCalls: t.state.Usage.ToolCalls}
	t.Emit(t.Cut(at)...)
	t.Emit(translate.Usage(u, t.state.Model, at))
	t.Out.Resolved, t.state.Waiting = t.state.Waiting, nil
	t.Out.End = &agent.TurnEnd{Outcome: outcome, Reason: reason, Usage: u, Model: t.state.Model}
	t.state.Ended = true
}

// open starts a block that later lines continue.
func (t *translator) open(where string, b conversation.Block, at time.Time) *openBlock {
	o := t.state.Find(b.ID)
	if o == nil {
		o = &openBlock{Entry: ledger.Entry{Conversation: where, Block: b}}
		t.state.Open = append(t.state.Open, o)
		t.Emit(o.Started(at))
	}
	return o
}

func (t *translator) delta(l demoformat.Line, at time.Time) {
	if o := t.state.Find(l.UUID); o != nil {
		switch {
		case o.Long:
			if l.Usage == nil {
				t.Unchanged()
			}
		case len(o.Block.Content)+len(l.Content) > ledger.MaxText:
			o.Long, o.Block.Content = true, ""
		default:
			o.Block.Content += l.Content
		}
		t.Emit(o.Delta(l.Content, at))
	}
}

// assistant closes a text block with its complete content, which replaces the deltas.
func (t *translator) assistant(l demoformat.Line, at time.Time) {
	o := t.open(conversationOf(l), textBlock(l), at) // if its start is missing
	o.Block.Content, o.Long = l.Content, false
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

// bounded truncates data to at most maxRaw bytes, as text.
func bounded(data []byte) string {
	return strings.ToValidUTF8(string(data[:min(len(data), maxRaw)]), "\uFFFD")
}
