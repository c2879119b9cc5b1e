package aisdk

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
)

// Message is a UIMessage.
type Message struct {
	ID       string    `json:"id"`
	Role     string    `json:"role"` // user, assistant
	Metadata *Metadata `json:"metadata,omitempty"`
	Parts    []*Part   `json:"parts"`
}

// Part is a part of a message. Fields that its type does not have are empty.
type Part struct {
	Type string `json:"type"`

	ID    string  `json:"id,omitempty"`   // reasoning, data
	Text  *string `json:"text,omitempty"` // text, reasoning
	State string  `json:"state,omitempty"`

	ToolName         string          `json:"toolName,omitempty"`
	ToolCallID       string          `json:"toolCallId,omitempty"`
	Title            string          `json:"title,omitempty"`
	ProviderExecuted bool            `json:"providerExecuted,omitempty"`
	ToolMetadata     json.RawMessage `json:"toolMetadata,omitempty"`
	Input            json.RawMessage `json:"input,omitempty"`
	Output           json.RawMessage `json:"output,omitempty"`
	Preliminary      bool            `json:"preliminary,omitempty"`
	ErrorText        string          `json:"errorText,omitempty"`
	Approval         *Approval       `json:"approval,omitempty"`

	Data json.RawMessage `json:"data,omitempty"`

	ProviderMetadata *ProviderMetadata `json:"providerMetadata,omitempty"`
}

// Approval is the decision about the permission for a call.
type Approval struct {
	ID       string `json:"id"`
	Approved *bool  `json:"approved,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// UserMessage returns the message of a prompt.
func UserMessage(promptID, text string) Message {
	return Message{ID: promptID, Role: "user", Parts: []*Part{{Type: "text", Text: &text}}}
}

// Assembler builds the message from chunks, as the AI SDK does.
type Assembler struct {
	Message Message
}

// NewAssembler returns an assembler with an empty message.
func NewAssembler() *Assembler {
	return &Assembler{Message: Message{Role: "assistant", Metadata: &Metadata{}, Parts: []*Part{}}}
}

// Add applies the next chunks.
func (a *Assembler) Add(chunks []Chunk) {
	for _, c := range chunks {
		a.add(c)
	}
}

func (a *Assembler) add(c Chunk) {
	m := &a.Message
	if c.MessageID != "" {
		m.ID = c.MessageID
	}
	if c.MessageMetadata != nil {
		m.Metadata.merge(*c.MessageMetadata)
	}
	switch c.Type {
	case "start-step":
		m.Parts = append(m.Parts, &Part{Type: "step-start"})
	case "reset-step":
		m.Parts = m.Parts[:a.step()]
	case "text-start", "reasoning-start":
		p := &Part{Type: c.Type[:len(c.Type)-len("-start")], Text: new(string), State: "streaming", ProviderMetadata: c.ProviderMetadata}
		if p.Type == "reasoning" {
			p.ID = c.ID
		}
		m.Parts = append(m.Parts, p)
	case "text-delta", "reasoning-delta":
		if p := a.text(c.ID); p != nil {
			*p.Text += c.Delta
		}
	case "text-end", "reasoning-end":
		if p := a.text(c.ID); p != nil {
			p.State = "done"
		}
	case "tool-input-start":
		m.Parts = append(m.Parts, &Part{
			Type: "dynamic-tool", ToolName: c.ToolName, ToolCallID: c.ToolCallID, State: "input-streaming", Title: c.Title,
			ProviderExecuted: c.ProviderExecuted, ToolMetadata: c.ToolMetadata,
		})
	default:
		if strings.HasPrefix(c.Type, "data-") {
			a.data(c)
		} else {
			a.tool(c)
		}
	}
}

// step is the index of the first part of the current step.
func (a *Assembler) step() int {
	for i, p := range slices.Backward(a.Message.Parts) {
		if p.Type == "step-start" {
			return i + 1
		}
	}
	return 0
}

// text returns the part of a streaming block.
func (a *Assembler) text(id string) *Part {
	for _, p := range slices.Backward(a.Message.Parts) {
		if p.Text != nil && p.State == "streaming" && p.ProviderMetadata.Overwinter.BlockID == id {
			return p
		}
	}
	return nil
}

func (a *Assembler) data(c Chunk) {
	if c.Transient {
		return
	}
	for _, p := range a.Message.Parts {
		if c.ID != "" && p.Type == c.Type && p.ID == c.ID {
			p.Data = c.Data
			return
		}
	}
	a.Message.Parts = append(a.Message.Parts, &Part{Type: c.Type, ID: c.ID, Data: c.Data})
}

// tool applies a chunk of an existing call.
func (a *Assembler) tool(c Chunk) {
	for _, p := range slices.Backward(a.Message.Parts) {
		if p.Type != "dynamic-tool" || p.ToolCallID != c.ToolCallID && (p.Approval == nil || p.Approval.ID != c.ApprovalID) {
			continue
		}
		switch c.Type {
		case "tool-input-available":
			p.State, p.ToolName, p.Title, p.ToolMetadata = "input-available", c.ToolName, c.Title, c.ToolMetadata
			p.Input, p.Output, p.ErrorText, p.Preliminary = c.Input, nil, "", false
		case "tool-output-available":
			p.State, p.Output, p.ErrorText, p.Preliminary = "output-available", c.Output, "", c.Preliminary
		case "tool-output-error":
			p.State, p.Output, p.ErrorText, p.Preliminary = "output-error", nil, c.ErrorText, false
		case "tool-approval-request":
			p.State, p.Approval = "approval-requested", &Approval{ID: c.ApprovalID}
		case "tool-approval-response":
			p.State, p.Approval = "approval-responded", &Approval{ID: c.ApprovalID, Approved: c.Approved, Reason: c.Reason}
		}
		return
	}
}

// merge sets the fields that have a value.
func (m *Metadata) merge(n Metadata) {
	for _, text := range []struct{ to, from *string }{
		{&m.SessionID, &n.SessionID}, {&m.PromptID, &n.PromptID}, {&m.RunID, &n.RunID}, {&m.Model, &n.Model}, {&m.Status, &n.Status}, {&m.Reason, &n.Reason},
	} {
		if *text.from != "" {
			*text.to = *text.from
		}
	}
	if n.Usage != nil {
		m.Usage = n.Usage
	}
	if n.CostUSD != nil {
		m.CostUSD = n.CostUSD
	}
	if n.Seq != 0 {
		m.Seq = n.Seq
	}
}

// Reply returns the message that answers a prompt, built from the blocks of its runs, the main
// conversation first, and from the questions of these runs, oldest first, each after its call, or
// where it was asked.
func Reply(sessionID string, p resource.PromptJSON, blocks []Located, questions []question.Question) Message {
	e, a := NewEncoder(sessionID, p.ID), NewAssembler()
	a.Add(e.Start())
	if len(blocks) > 0 {
		e.turn.RunID = p.RunID
		e.turnStart(0)
	}
	calls := map[string]bool{}
	for _, b := range blocks {
		calls[b.Block.ID] = true
	}
	for _, b := range blocks {
		questions = slices.DeleteFunc(questions, func(q question.Question) bool {
			due := !calls[q.Asked.ToolUseID] && b.ConversationID == conversation.Main && q.CreatedAt.Before(b.Block.CreatedAt)
			if due {
				e.asked(q)
			}
			return due
		})
		e.block(b.ConversationID, b.Block, !b.Block.Status.Open())
		questions = slices.DeleteFunc(questions, func(q question.Question) bool {
			due := q.Asked.ToolUseID == b.Block.ID
			if due {
				e.asked(q)
			}
			return due
		})
	}
	for _, q := range questions {
		e.asked(q)
	}
	if p.Status.Final() {
		end := event.TurnEndData{RunID: p.RunID, PromptID: p.ID, Usage: p.Usage, Model: p.Model}
		e.turnEnd(end, 0)
		e.turn.Prompt = p
		e.finish(0)
	}
	a.Add(e.out)
	return a.Message
}

// asked adds a question as its events have shown it: when it was asked, and how it ended.
func (e *Encoder) asked(q question.Question) {
	open := q
	open.Status, open.Answer, open.Reason, open.ResolvedAt = question.Open, nil, "", time.Time{}
	e.question(resource.Question(open))
	if q.Status != question.Open {
		e.resolved(event.QuestionResolved(q))
	}
}

// Located is a block with its conversation.
type Located struct {
	ConversationID string
	Block          conversation.Block
}
