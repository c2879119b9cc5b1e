package agui

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// protocolVersion is the version that streams declare.
const protocolVersion = "1.0"

// Event is an AG-UI event. Fields that its type does not have are empty.
type Event struct {
	Type      string `json:"type"`
	Timestamp int64  `json:"timestamp,omitempty"` // milliseconds

	ThreadID        string       `json:"threadId,omitempty"`
	RunID           string       `json:"runId,omitempty"`
	ProtocolVersion string       `json:"protocolVersion,omitempty"`
	Outcome         *Outcome     `json:"outcome,omitempty"`
	Usage           []TokenUsage `json:"usage,omitempty"`
	Message         string       `json:"message,omitempty"`
	Code            string       `json:"code,omitempty"`

	MessageID string  `json:"messageId,omitempty"`
	Role      string  `json:"role,omitempty"`
	Delta     string  `json:"delta,omitempty"`
	Content   *string `json:"content,omitempty"`

	ToolCallID   string `json:"toolCallId,omitempty"`
	ToolCallName string `json:"toolCallName,omitempty"`

	SubagentRunID string `json:"subagentRunId,omitempty"`

	Name  string          `json:"name,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// Outcome is the outcome of a run or a subagent.
type Outcome struct {
	Type         string      `json:"type"` // of a run: success, interrupt, cancelled; of a subagent: suspended
	Interrupts   []Interrupt `json:"interrupts,omitempty"`
	InterruptIDs []string    `json:"interruptIds,omitempty"`
}

// Interrupt is an open question.
type Interrupt struct {
	ID             string          `json:"id"`
	Reason         string          `json:"reason"` // permission, question
	Message        string          `json:"message,omitempty"`
	ToolCallID     string          `json:"toolCallId,omitempty"`
	ResponseSchema json.RawMessage `json:"responseSchema,omitempty"`
	ExpiresAt      string          `json:"expiresAt,omitempty"`
	Metadata       json.RawMessage `json:"metadata,omitempty"`
}

// TokenUsage is the usage of a run.
type TokenUsage struct {
	Model        string `json:"model,omitempty"`
	InputTokens  int64  `json:"inputTokens"`
	OutputTokens int64  `json:"outputTokens"`
}

// Message is a message of a snapshot. Fields that its role does not have are empty.
type Message struct {
	ID            string     `json:"id"`
	Role          string     `json:"role"` // user, assistant, reasoning, tool
	Content       *string    `json:"content,omitempty"`
	ToolCalls     []ToolCall `json:"toolCalls,omitempty"`
	ToolCallID    string     `json:"toolCallId,omitempty"`
	Error         string     `json:"error,omitempty"`
	SubagentRunID string     `json:"subagentRunId,omitempty"`
}

// ToolCall is a call of a tool in an assistant's message.
type ToolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"` // function
	Function FunctionCall `json:"function"`
}

// FunctionCall is the name of a tool and its input, as JSON.
type FunctionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// AppendSSE appends events in the format of the stream.
func AppendSSE(dst []byte, events []Event) []byte {
	for _, e := range events {
		dst = append(dst, "data: "...)
		dst = append(dst, encode(e)...)
		dst = append(dst, "\n\n"...)
	}
	return dst
}

// encode returns the JSON of a value that always marshals.
func encode(v any) json.RawMessage {
	data, err := conversation.Encode(v)
	if err != nil {
		panic(err)
	}
	return data
}
