package conversation

import (
	"bytes"
	"encoding/json"
	"strings"
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
	if d, ok := v.(TextDelta); ok && isPlain(d.BlockID) && isPlain(d.Delta) {
		return d.plainJSON(), nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// isPlain reports whether a text is the same inside of a JSON string: printable ASCII without quotes
// and backslashes.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// The parts of a delta's JSON around its texts.
const beforeBlock, beforeDelta, afterDelta = `{"blockId":"`, `","delta":"`, `"}`

// plainJSON encodes a delta whose texts are plain. Most events are such deltas, and the general
// encoder takes several times as long.
func (d TextDelta) plainJSON() []byte {
	b := make([]byte, 0, len(beforeBlock)+len(d.BlockID)+len(beforeDelta)+len(d.Delta)+len(afterDelta))
	b = append(append(b, beforeBlock...), d.BlockID...)
	b = append(append(b, beforeDelta...), d.Delta...)
	return append(b, afterDelta...)
}

// DecodeTextDelta decodes a delta that Encode has encoded, or any other JSON of one.
func DecodeTextDelta(data []byte) (TextDelta, error) {
	if rest, ok := strings.CutPrefix(string(data), beforeBlock); ok {
		block, rest, _ := strings.Cut(rest, beforeDelta)
		if delta, ok := strings.CutSuffix(rest, afterDelta); ok && isPlain(block) && isPlain(delta) {
			return TextDelta{BlockID: block, Delta: delta}, nil
		}
	}
	var d TextDelta
	err := json.Unmarshal(data, &d)
	return d, err
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
