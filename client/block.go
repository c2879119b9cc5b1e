package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// MainConversation is the id of the conversation that receives a session's prompts.
const MainConversation = "main"

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

// BlockStatus is the progress of a block.
type BlockStatus string

// Text is streaming, then complete, aborted or abandoned. Tools and subagents
// are pending or running, then success, error or aborted.
const (
	BlockStreaming BlockStatus = "streaming"
	BlockComplete  BlockStatus = "complete"
	BlockAbandoned BlockStatus = "abandoned"
	BlockPending   BlockStatus = "pending"
	BlockRunning   BlockStatus = "running"
	BlockSuccess   BlockStatus = "success"
	BlockError     BlockStatus = "error"
	BlockAborted   BlockStatus = "aborted"
)

// Open reports whether a block with this status can still change.
func (s BlockStatus) Open() bool {
	return s == BlockStreaming || s == BlockPending || s == BlockRunning
}

// Block is one piece of a conversation. Fields that its type does not use are empty.
type Block struct {
	ID        string      `json:"id"`
	Type      BlockType   `json:"type"`
	Status    BlockStatus `json:"status"`
	CreatedAt Time        `json:"createdAt"`
	// RunID is the run that produced the block, and CompletedAt the time at which it was complete.
	// Both are empty in blocks of earlier releases.
	RunID       string `json:"runId,omitempty"`
	CompletedAt *Time  `json:"completedAt,omitempty"`

	Content  string `json:"content,omitempty"`  // user_message, assistant_text, thinking
	PromptID string `json:"promptId,omitempty"` // user_message
	Author   string `json:"author,omitempty"`   // user_message

	Name      string          `json:"name,omitempty"`      // tool_use, subagent
	Input     json.RawMessage `json:"input,omitempty"`     // tool_use, subagent
	ToolUseID string          `json:"toolUseId,omitempty"` // tool_use, tool_result
	Tool                      // tool_use
	Output    json.RawMessage `json:"output,omitempty"`  // tool_result: a JSON string or the agent's own structure
	IsError   bool            `json:"isError,omitempty"` // tool_result
	// Images are the images in the output of a tool_result. Client.AttachmentGet reads them.
	Images []Image `json:"images,omitempty"`

	Subtype string `json:"subtype,omitempty"` // system
	Message string `json:"message,omitempty"` // system

	SubagentID string `json:"subagentId,omitempty"` // subagent: the id of its conversation

	// TruncatedBytes is the number of bytes that were omitted because the block is too large.
	TruncatedBytes int64 `json:"truncatedBytes,omitempty"`
}

// Tool describes a tool call in the same form for every agent.
type Tool struct {
	Kind      string     `json:"kind,omitempty"`  // read, edit, execute, search, fetch, think or other
	Title     string     `json:"title,omitempty"` // one line for display
	Locations []Location `json:"locations,omitempty"`
	Diff      []Edit     `json:"diff,omitempty"` // the changes of an edit
}

// Location is a file that a tool call reads or changes.
type Location struct {
	Path string `json:"path"` // in the agent's notation
	Line int    `json:"line,omitempty"`
}

// Edit is the change of a file by a tool call: a text that replaces another one, or a patch.
type Edit struct {
	Path      string `json:"path,omitempty"` // empty if only the patch names files
	OldText   string `json:"oldText,omitempty"`
	NewText   string `json:"newText,omitempty"`
	Patch     string `json:"patch,omitempty"` // in the agent's format, usually a unified diff
	Truncated bool   `json:"truncated,omitempty"`
}

// Image is an image in the result of a tool.
type Image struct {
	ID        string `json:"id"` // id of the attachment
	MediaType string `json:"mediaType"`
	Bytes     int64  `json:"bytes"`
	// Omitted reports that the bytes are not stored.
	Omitted bool `json:"omitted,omitempty"`
}

// Thread is one conversation: the main conversation, or that of a subagent.
type Thread struct {
	ID     string  `json:"id"`
	Blocks []Block `json:"blocks"`
}

// Conversation is the full conversation of a session: the main thread first, then subagents in the
// order in which they appeared.
type Conversation struct {
	Threads []Thread `json:"conversations"`
	// Seq is the position in the session's log at which the conversation has this state. Later
	// events follow this position.
	Seq int64 `json:"seq,omitempty"`
}

// Blocks returns the conversation, with all its pages. To continue with later events, call Follow
// with its Seq.
func (c *Client) Blocks(ctx context.Context, sessionID string) (Conversation, error) {
	var whole Conversation
	places := map[string]int{}
	for cursor := ""; ; {
		var page struct {
			Conversation
			NextCursor string `json:"nextCursor"`
		}
		path := sessionPath(sessionID) + "/blocks"
		if cursor != "" {
			path += "?cursor=" + url.QueryEscape(cursor)
		}
		if _, err := c.call(ctx, http.MethodGet, path, nil, &page); err != nil {
			return Conversation{}, err
		}
		whole.Seq = page.Seq
		for _, thread := range page.Threads {
			at, known := places[thread.ID]
			if !known {
				places[thread.ID] = len(whole.Threads)
				whole.Threads = append(whole.Threads, thread)
				continue
			}
			whole.Threads[at].Blocks = append(whole.Threads[at].Blocks, thread.Blocks...)
		}
		if page.NextCursor == "" || page.NextCursor == cursor {
			return whole, nil
		}
		cursor = page.NextCursor
	}
}
