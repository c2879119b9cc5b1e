package conversation

import (
	"bytes"
	"encoding/json"
)

// MarshalJSON writes exactly the fields of the block's type, even if empty: a tool_result always
// has isError, and a text always has content.
func (b Block) MarshalJSON() ([]byte, error) {
	head := blockHead{ID: b.ID, Type: b.Type, Status: b.Status, CreatedAt: b.CreatedAt.UTC().Format(milliseconds), TruncatedBytes: b.TruncatedBytes, RunID: b.RunID}
	if b.CompletedAt != nil {
		head.CompletedAt = b.CompletedAt.UTC().Format(milliseconds)
	}
	switch b.Type {
	case UserMessage:
		return Encode(struct {
			blockHead
			Content  string `json:"content"`
			PromptID string `json:"promptId,omitempty"`
			Author   string `json:"author,omitempty"`
		}{head, b.Content, b.PromptID, b.Author})
	case AssistantText, Thinking:
		return Encode(struct {
			blockHead
			Content string `json:"content"`
		}{head, b.Content})
	case ToolUse:
		return Encode(struct {
			blockHead
			Name      string          `json:"name"`
			Input     json.RawMessage `json:"input"`
			ToolUseID string          `json:"toolUseId"`
			Tool
		}{head, b.Name, orNull(b.Input), b.ToolUseID, b.Tool})
	case ToolResult:
		return Encode(struct {
			blockHead
			ToolUseID string          `json:"toolUseId"`
			Output    json.RawMessage `json:"output"`
			IsError   bool            `json:"isError"`
			Images    []Image         `json:"images,omitempty"`
		}{head, b.ToolUseID, orNull(b.Output), b.IsError, b.Images})
	case System:
		return Encode(struct {
			blockHead
			Subtype string `json:"subtype"`
			Message string `json:"message"`
		}{head, b.Subtype, b.Message})
	case Subagent:
		return Encode(struct {
			blockHead
			SubagentID string          `json:"subagentId"`
			Name       string          `json:"name"`
			Input      json.RawMessage `json:"input"`
		}{head, b.SubagentID, b.Name, orNull(b.Input)})
	}
	type plain Block // an unknown type keeps its fields
	return Encode(plain(b))
}

// Encode is json.Marshal without the escapes for HTML, which turn a < into six bytes and are
// useless to readers of events.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// UnmarshalJSON reverses MarshalJSON. It treats null in a field for the agent's JSON as absence, so
// that a round trip preserves the block.
func (b *Block) UnmarshalJSON(data []byte) error {
	type plain Block
	if err := json.Unmarshal(data, (*plain)(b)); err != nil {
		return err
	}
	b.Input, b.Output = orNothing(b.Input), orNothing(b.Output)
	return nil
}

type blockHead struct {
	ID        string      `json:"id"`
	Type      BlockType   `json:"type"`
	Status    BlockStatus `json:"status"`
	CreatedAt string      `json:"createdAt"`

	RunID       string `json:"runId,omitempty"`
	CompletedAt string `json:"completedAt,omitempty"`

	TruncatedBytes int64 `json:"truncatedBytes,omitempty"`
}

// milliseconds is RFC 3339 with exactly three decimals, like all times in the API.
const milliseconds = "2006-01-02T15:04:05.000Z07:00"

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

func orNothing(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}
