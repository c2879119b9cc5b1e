package aisdk

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// Header and Version identify the stream in the header of a response.
const (
	Header  = "X-Vercel-Ai-Ui-Message-Stream"
	Version = "v1"
)

// Done is the end of a stream.
const Done = "data: [DONE]\n\n"

// Chunk is a UIMessageChunk. Fields that its type does not have are empty.
type Chunk struct {
	Type string `json:"type"`

	MessageID       string    `json:"messageId,omitempty"`       // start
	MessageMetadata *Metadata `json:"messageMetadata,omitempty"` // start, finish, message-metadata
	FinishReason    string    `json:"finishReason,omitempty"`    // finish

	ID    string `json:"id,omitempty"` // text, reasoning, data
	Delta string `json:"delta,omitempty"`

	ToolCallID       string          `json:"toolCallId,omitempty"`
	ToolName         string          `json:"toolName,omitempty"`
	Title            string          `json:"title,omitempty"`
	Dynamic          bool            `json:"dynamic,omitempty"`
	ProviderExecuted bool            `json:"providerExecuted,omitempty"`
	ToolMetadata     json.RawMessage `json:"toolMetadata,omitempty"`
	Input            json.RawMessage `json:"input,omitempty"`
	Output           json.RawMessage `json:"output,omitempty"`
	Preliminary      bool            `json:"preliminary,omitempty"`
	ErrorText        string          `json:"errorText,omitempty"` // tool-output-error, error

	ApprovalID string `json:"approvalId,omitempty"`
	Approved   *bool  `json:"approved,omitempty"`
	Reason     string `json:"reason,omitempty"` // approvals, abort

	Data      json.RawMessage `json:"data,omitempty"`
	Transient bool            `json:"transient,omitempty"`

	ProviderMetadata *ProviderMetadata `json:"providerMetadata,omitempty"`
}

// ProviderMetadata names the block that a part shows.
type ProviderMetadata struct {
	Overwinter BlockMetadata `json:"overwinter"`
}

// BlockMetadata is the metadata of a part.
type BlockMetadata struct {
	BlockID string `json:"blockId"`
}

// Metadata is the metadata of a message. Later values replace earlier ones, field by field.
type Metadata struct {
	SessionID string   `json:"sessionId,omitempty"`
	PromptID  string   `json:"promptId,omitempty"`
	RunID     string   `json:"runId,omitempty"`
	Model     string   `json:"model,omitempty"`
	Usage     *Usage   `json:"usage,omitempty"`
	CostUSD   *float64 `json:"costUsd,omitempty"`
	Status    string   `json:"status,omitempty"` // of the prompt
	Reason    string   `json:"reason,omitempty"` // the reason for its outcome
	// Seq is the position in the session's log at which the turn began, and finally that at which it ended.
	Seq int64 `json:"seq,omitempty"`
}

// Usage is the usage of a turn.
type Usage struct {
	InputTokens  int64 `json:"inputTokens"`
	OutputTokens int64 `json:"outputTokens"`
	ToolCalls    int64 `json:"toolCalls,omitempty"`
}

// AppendSSE appends chunks in the format of the stream.
func AppendSSE(dst []byte, chunks []Chunk) []byte {
	for _, c := range chunks {
		dst = append(dst, "data: "...)
		dst = append(dst, encode(c)...)
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
