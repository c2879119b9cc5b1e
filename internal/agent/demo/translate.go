package demo

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/demo/demoformat"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// maxRaw bounds what is kept of a line that was not understood, and of stderr in a crash's message.
const maxRaw = 1 << 10

// reasonDelivered: the agent had the prompt before, and died on it: what it did is unknown.
const reasonDelivered = "already_delivered"

// translator reads the lines of one run, or those of one transcript file. It keeps the blocks that
// are open, whole, because closing a block shows it whole; the agent keeps them small.
type translator struct {
	run   agent.RunContext
	state state
}

// stateVersion is the version of the form of a state.
const stateVersion = 1

type state struct {
	Open    []openBlock      `json:"open,omitempty"`    // in the order they were opened
	Waiting []string         `json:"waiting,omitempty"` // ids of questions
	Usage   demoformat.Usage `json:"usage"`
	Model   string           `json:"model,omitempty"`
	Ended   bool             `json:"ended,omitempty"`
}

type openBlock struct {
	Conversation string             `json:"conversation"`
	Block        conversation.Block `json:"block"`
}

// NewTranslator starts a run, or resumes from a state.
func (Adapter) NewTranslator(run agent.RunContext, from []byte) (agent.Translator, error) {
	t := &translator{run: run}
	if len(from) > 0 {
		if err := agent.DecodeState(from, stateVersion, &t.state); err != nil {
			return nil, fmt.Errorf("demo translator of run %s: state: %w", run.RunID, err)
		}
	}
	return t, nil
}

// State returns what a later translator needs.
func (t *translator) State() ([]byte, error) { return agent.EncodeState(stateVersion, t.state) }

// Translate reads one frame. Frames after the end of the turn are ignored.
func (t *translator) Translate(f agent.Frame) (agent.Translation, error) {
	if t.state.Ended {
		return agent.Translation{}, nil
	}
	switch f.Stream {
	case agent.Stdout:
		return t.stdout(f), nil
	case agent.Exit:
		return t.exit(f), nil
	}
	return agent.Translation{}, nil
}

// Cut closes what is open.
func (t *translator) Cut(at time.Time) []conversation.Event {
	var events []conversation.Event
	for len(t.state.Open) > 0 { // the innermost first: a subagent ends before its block
		o := t.state.Open[len(t.state.Open)-1]
		events = append(events, t.close(o.Block.ID, conversation.Aborted, at)...)
	}
	return events
}

func (t *translator) stdout(f agent.Frame) agent.Translation {
	if len(bytes.TrimSpace(f.Data)) == 0 {
		return agent.Translation{}
	}
	l, ok := demoformat.DecodeLine(f.Data)
	if !ok {
		id := fmt.Sprintf("unparsed/%s/%d", t.run.RunID, f.No)
		b := conversation.Block{
			ID: id, Type: conversation.System, CreatedAt: f.At.UTC(), Subtype: "unparsed", Message: bounded(f.Data, maxRaw),
		}
		return agent.Translation{Events: whole(conversation.Main, b, conversation.Complete, f.At)}
	}
	if l.RunID != "" && t.run.RunID != "" && l.RunID != t.run.RunID {
		return agent.Translation{} // the tail of a turn that is over
	}
	return t.read(l, f.At)
}

// read says what one line means, in the stream and in a transcript alike. Blocks have the time
// that the agent gave them, events that of their frame.
func (t *translator) read(l demoformat.Line, at time.Time) agent.Translation {
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
		b := conversation.Block{
			ID: l.UUID, Type: conversation.UserMessage, CreatedAt: l.At,
			Content: l.Content, PromptID: l.PromptID, Author: l.Author,
		}
		return agent.Translation{Events: whole(where, b, conversation.Complete, at)}
	case demoformat.LineStart:
		return agent.Translation{Events: t.open(where, textBlock(l), conversation.Streaming, at)}
	case demoformat.LineDelta:
		return agent.Translation{Events: t.delta(l, at)}
	case demoformat.LineAssistant:
		return agent.Translation{Events: t.assistant(l, at)}
	case demoformat.LineToolUse:
		return agent.Translation{Events: t.open(where, toolBlock(l), conversation.Pending, at)}
	case demoformat.LineToolRunning:
		return agent.Translation{Events: t.running(l, at)}
	case demoformat.LineToolResult:
		return agent.Translation{Events: t.toolResult(l, at)}
	case demoformat.LineQuestion:
		return t.question(l)
	case demoformat.LineAnswered:
		return t.answered(l)
	case demoformat.LineSystem:
		b := conversation.Block{
			ID: l.UUID, Type: conversation.System, CreatedAt: l.At, Subtype: l.Subtype, Message: l.Content,
		}
		return agent.Translation{Events: whole(where, b, conversation.Complete, at)}
	case demoformat.LineTitle:
		return agent.Translation{Events: []conversation.Event{
			{Type: conversation.EventTitle, At: at.UTC(), Data: conversation.Title{Title: l.Content}},
		}}
	case demoformat.LineResult:
		return t.end(session.Outcome(l.Outcome), l.Reason, at)
	case demoformat.LineAcknowledged:
		if l.Outcome == "" {
			return t.end(session.OutcomeUnknown, reasonDelivered, at)
		}
		return t.end(session.Outcome(l.Outcome), l.Reason, at)
	}
	return agent.Translation{}
}

func (t *translator) exit(f agent.Frame) agent.Translation {
	report, err := agent.ParseExit(f.Data)
	if err != nil {
		report = agent.ExitReport{Code: -1, Stderr: "the exit report cannot be read"}
	}
	if report.Interrupted {
		return t.end(session.OutcomeCancelled, session.ReasonAborted, f.At)
	}
	problem := conversation.Event{
		Type: conversation.EventError, At: f.At.UTC(),
		Data: conversation.Problem{Code: session.ReasonAgentCrashed, Message: crashMessage(report)},
	}
	tr := t.end(session.OutcomeFailed, session.ReasonAgentCrashed, f.At)
	tr.Events = append(tr.Events, problem)
	return tr
}

// end closes what is open and ends the turn.
func (t *translator) end(outcome session.Outcome, reason string, at time.Time) agent.Translation {
	events := t.Cut(at)
	t.state.Ended = true
	u := t.state.Usage
	events = append(events, conversation.Event{
		Type: conversation.EventMetadataUpdate, ConversationID: conversation.Main, At: at.UTC(),
		Data: conversation.MetadataUpdate{
			Usage: conversation.Usage{InputTokens: u.Input, OutputTokens: u.Output}, Model: t.state.Model,
		},
	})
	resolved := t.state.Waiting
	t.state.Waiting = nil
	return agent.Translation{Events: events, Resolved: resolved, End: &agent.TurnEnd{
		Outcome: outcome, Reason: reason, Model: t.state.Model,
		Usage: session.Usage{InputTokens: u.Input, OutputTokens: u.Output, ToolCalls: u.ToolCalls},
	}}
}

// question hands on what the agent asks. The block that it is about has begun.
func (t *translator) question(l demoformat.Line) agent.Translation {
	if slices.Contains(t.state.Waiting, l.UUID) {
		return agent.Translation{}
	}
	t.state.Waiting = append(t.state.Waiting, l.UUID)
	return agent.Translation{Questions: []agent.Question{{
		ID: l.UUID, Kind: agent.QuestionKind(l.Kind), ToolName: l.Name, ToolUseID: l.ToolUseID, Input: l.Input,
		Title: l.Content, Inquiries: l.Inquiries,
	}}}
}

func (t *translator) answered(l demoformat.Line) agent.Translation {
	i := slices.Index(t.state.Waiting, l.UUID)
	if i < 0 {
		return agent.Translation{}
	}
	t.state.Waiting = slices.Delete(t.state.Waiting, i, i+1)
	return agent.Translation{Resolved: []string{l.UUID}}
}

// open begins a block that later lines continue.
func (t *translator) open(where string, b conversation.Block, status conversation.BlockStatus, at time.Time) []conversation.Event {
	if t.find(b.ID) >= 0 {
		return nil
	}
	b.Status = status
	t.state.Open = append(t.state.Open, openBlock{Conversation: where, Block: b})
	return []conversation.Event{start(where, b, at)}
}

func (t *translator) delta(l demoformat.Line, at time.Time) []conversation.Event {
	i := t.find(l.UUID)
	if i < 0 {
		return nil
	}
	o := &t.state.Open[i]
	o.Block.Content = string(conversation.AppendText([]byte(o.Block.Content), l.Content))
	return []conversation.Event{{
		Type: conversation.EventTextDelta, ConversationID: o.Conversation, At: at.UTC(),
		Data: conversation.TextDelta{BlockID: l.UUID, Delta: l.Content},
	}}
}

// assistant closes a text block. Its content counts, not the deltas before it.
func (t *translator) assistant(l demoformat.Line, at time.Time) []conversation.Event {
	events := t.open(conversationOf(l), textBlock(l), conversation.Streaming, at) // where its start is missing
	t.state.Open[t.find(l.UUID)].Block.Content = l.Content
	status := conversation.Complete
	if l.Aborted {
		status = conversation.Aborted
	}
	return append(events, t.close(l.UUID, status, at)...)
}

func (t *translator) running(l demoformat.Line, at time.Time) []conversation.Event {
	i := t.find(l.UUID)
	if i < 0 {
		return nil
	}
	o := &t.state.Open[i]
	o.Block.Status = conversation.Running
	return []conversation.Event{{
		Type: conversation.EventBlockUpdate, ConversationID: o.Conversation, At: at.UTC(),
		Data: conversation.BlockUpdate{BlockID: l.UUID, Updates: conversation.Updates{Status: conversation.Running}},
	}}
}

func (t *translator) toolResult(l demoformat.Line, at time.Time) []conversation.Event {
	status := conversation.Success
	switch {
	case l.Aborted:
		status = conversation.Aborted
	case l.IsError:
		status = conversation.Failed
	}
	events := t.close(l.ToolUseID, status, at)
	return append(events, whole(conversationOf(l), conversation.Block{
		ID: l.UUID, Type: conversation.ToolResult, CreatedAt: l.At,
		ToolUseID: l.ToolUseID, Output: l.Output, IsError: l.IsError,
	}, status, at)...)
}

// close completes an open block; one that is not open is unchanged.
func (t *translator) close(id string, status conversation.BlockStatus, at time.Time) []conversation.Event {
	i := t.find(id)
	if i < 0 {
		return nil
	}
	o := t.state.Open[i]
	t.state.Open = slices.Delete(t.state.Open, i, i+1)
	o.Block.Status = status
	return []conversation.Event{complete(o.Conversation, o.Block, at)}
}

func (t *translator) find(id string) int {
	return slices.IndexFunc(t.state.Open, func(o openBlock) bool { return o.Block.ID == id })
}

// whole shows a block that is there all at once. Its start has what identifies it and its
// completion has everything, so that nothing long is sent twice.
func whole(where string, b conversation.Block, status conversation.BlockStatus, at time.Time) []conversation.Event {
	head := conversation.Block{
		ID: b.ID, Type: b.Type, Status: conversation.Streaming, CreatedAt: b.CreatedAt,
		PromptID: b.PromptID, Author: b.Author, ToolUseID: b.ToolUseID, Subtype: b.Subtype,
	}
	if b.Type == conversation.ToolResult {
		head.Status = conversation.Running
	}
	b.Status = status
	return []conversation.Event{start(where, head, at), complete(where, b, at)}
}

func start(where string, b conversation.Block, at time.Time) conversation.Event {
	return conversation.Event{
		Type: conversation.EventBlockStart, ConversationID: where, At: at.UTC(), Data: conversation.BlockStart{Block: b},
	}
}

func complete(where string, b conversation.Block, at time.Time) conversation.Event {
	return conversation.Event{
		Type: conversation.EventBlockComplete, ConversationID: where, At: at.UTC(), Data: conversation.BlockComplete{Block: b},
	}
}

func textBlock(l demoformat.Line) conversation.Block {
	b := conversation.Block{ID: l.UUID, Type: conversation.AssistantText, CreatedAt: l.At}
	if l.Kind == demoformat.KindThinking {
		b.Type = conversation.Thinking
	}
	return b
}

func toolBlock(l demoformat.Line) conversation.Block {
	b := conversation.Block{ID: l.UUID, CreatedAt: l.At, Name: l.Name, Input: l.Input}
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

func crashMessage(r agent.ExitReport) string {
	msg := fmt.Sprintf("the agent ended with exit code %d in the middle of a turn", r.Code)
	if r.Signal != "" {
		msg = fmt.Sprintf("the agent was ended by a signal (%s) in the middle of a turn", r.Signal)
	}
	if said := strings.TrimSpace(r.Stderr); said != "" {
		if over := len(said) - maxRaw; over > 0 {
			said = strings.ToValidUTF8(said[over:], "")
		}
		msg += ": " + said
	}
	return msg
}

// bounded is data as text of at most limit bytes.
func bounded(data []byte, limit int) string {
	return strings.ToValidUTF8(string(data[:min(len(data), limit)]), "\uFFFD")
}
