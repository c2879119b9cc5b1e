package conversation

import (
	"encoding/json"
	"time"
)

// Main is the id of the conversation with a session's prompts.
const Main = "main"

// BlockType is the type of a block.
type BlockType string

// The types of block.
const (
	UserMessage   BlockType = "user_message"
	AssistantText BlockType = "assistant_text"
	Thinking      BlockType = "thinking"
	ToolUse       BlockType = "tool_use"
	ToolResult    BlockType = "tool_result"
	System        BlockType = "system"
	Subagent      BlockType = "subagent"
)

// BlockStatus is the status of a block.
type BlockStatus string

// Text is streaming, then complete, aborted or abandoned. Tools and subagents
// are pending or running, then success, error or aborted.
const (
	Streaming BlockStatus = "streaming"
	Complete  BlockStatus = "complete"
	Abandoned BlockStatus = "abandoned"
	Pending   BlockStatus = "pending"
	Running   BlockStatus = "running"
	Success   BlockStatus = "success"
	Failed    BlockStatus = "error"
	Aborted   BlockStatus = "aborted"
)

// Open reports whether a block with this status can still change.
func (s BlockStatus) Open() bool { return s == Streaming || s == Pending || s == Running }

// SubtypeRetry is the subtype of a system block that reports the retry of a failed request to a
// model.
const SubtypeRetry = "retry"

// Block is an element of a conversation. Its id is the agent's, the same in the stream and in the
// transcript. Fields that its type does not use are empty.
type Block struct {
	ID        string      `json:"id"`
	Type      BlockType   `json:"type"`
	Status    BlockStatus `json:"status"`
	CreatedAt time.Time   `json:"createdAt"`
	// RunID is the run in which the block appeared, and CompletedAt when it was completed. Adapters
	// leave them empty; stored blocks have them, except blocks of earlier releases.
	RunID       string     `json:"runId,omitempty"`
	CompletedAt *time.Time `json:"completedAt,omitempty"`

	Content  string `json:"content,omitempty"`  // user_message, assistant_text, thinking
	PromptID string `json:"promptId,omitempty"` // user_message
	Author   string `json:"author,omitempty"`   // user_message

	Name      string          `json:"name,omitempty"`      // tool_use, subagent
	Input     json.RawMessage `json:"input,omitempty"`     // tool_use, subagent
	ToolUseID string          `json:"toolUseId,omitempty"` // tool_use, tool_result
	Tool                      // tool_use; empty in blocks of earlier releases
	Output    json.RawMessage `json:"output,omitempty"`  // tool_result: a JSON string or the agent's own structure
	IsError   bool            `json:"isError,omitempty"` // tool_result
	// Images are the images in the output of a tool_result, which only refers to them.
	Images []Image `json:"images,omitempty"`

	Subtype string `json:"subtype,omitempty"` // system; SubtypeRetry, for example
	Message string `json:"message,omitempty"` // system

	SubagentID string `json:"subagentId,omitempty"` // subagent: the id of its conversation

	// TruncatedBytes is the number of bytes of the block that were omitted because of
	// MaxBlockBytes.
	TruncatedBytes int64 `json:"truncatedBytes,omitempty"`
}

// Thread is one conversation: the main one, or a subagent's.
type Thread struct {
	ID     string  `json:"id"`
	Blocks []Block `json:"blocks"`
}

// Conversation contains all threads of a session: the main one first, then subagents in the order
// in which they appeared.
type Conversation struct {
	Threads []Thread `json:"conversations"`
	// Seq is the position in the session's log that this state corresponds to; later events
	// continue from there. 0 if it was not read from a log, or there are no events.
	Seq int64 `json:"seq,omitempty"`
}
