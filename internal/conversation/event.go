package conversation

import (
	"encoding/json"
	"time"
)

// EventType is the type of an event of a conversation.
type EventType string

// The events that an agent's translator creates, by their names in the stream.
const (
	EventBlockStart     EventType = "block_start"
	EventTextDelta      EventType = "text_delta"
	EventBlockUpdate    EventType = "block_update"
	EventBlockComplete  EventType = "block_complete"
	EventBlockRemoved   EventType = "block_removed"
	EventMetadataUpdate EventType = "metadata_update"
	EventTitle          EventType = "title"
	EventError          EventType = "error"
)

// Event is an event of a conversation. Data is the struct below for its type.
type Event struct {
	Type           EventType
	ConversationID string // Main or a subagent's; empty for events about the whole session
	At             time.Time
	Data           any
}

// BlockStart opens a block.
type BlockStart struct {
	Block Block `json:"block"`
}

// TextDelta appends to the content of an open text block.
type TextDelta struct {
	BlockID string `json:"blockId"`
	Delta   string `json:"delta"`
}

// BlockUpdate changes fields of an open block; absent fields stay unchanged.
type BlockUpdate struct {
	BlockID string  `json:"blockId"`
	Updates Updates `json:"updates"`
}

// Updates are the fields that a block_update may change.
type Updates struct {
	Status BlockStatus     `json:"status,omitempty"`
	Name   string          `json:"name,omitempty"`
	Input  json.RawMessage `json:"input,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`
	// Tool is replaced as a whole if its kind is set.
	Tool
	// SubagentID is known only once the agent has started the subagent.
	SubagentID string `json:"subagentId,omitempty"`
	// TruncatedBytes is the number of bytes of the block that were omitted because of
	// MaxBlockBytes.
	TruncatedBytes int64 `json:"truncatedBytes,omitempty"`
}

// BlockComplete closes a block and contains it completely: a reader does not need earlier deltas.
type BlockComplete struct {
	Block Block `json:"block"`
}

// BlockRemoved removes a block, for example when an agent retries.
type BlockRemoved struct {
	BlockID string `json:"blockId"`
}

// MetadataUpdate reports the usage of the turn so far.
type MetadataUpdate struct {
	Usage   Usage    `json:"usage"`
	CostUSD *float64 `json:"costUsd"` // nil if unknown
	Model   string   `json:"model,omitempty"`
}

// Usage counts tokens of a turn.
type Usage struct {
	InputTokens  int64 `json:"inputTokens"`
	OutputTokens int64 `json:"outputTokens"`
}

// Title is a title that the agent gave the session.
type Title struct {
	Title string `json:"title"`
}

// Problem is the data of an error event.
type Problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}
