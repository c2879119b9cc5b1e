package geminiformat

import (
	"encoding/json"
)

// ModeTag begins the message that the program prints as the model after a change of its mode.
const ModeTag = "[MODE_UPDATE] "

// Update is the body of session/update. Content is the content of a message, or a list with the
// content of a call.
type Update struct {
	Kind    string          `json:"sessionUpdate"`
	Content json.RawMessage `json:"content"`
	Call
}

// Call is a tool call in the form of the Agent Client Protocol.
type Call struct {
	ID        string          `json:"toolCallId"`
	Status    string          `json:"status"`
	Title     string          `json:"title"`
	ToolKind  string          `json:"kind"`
	Locations json.RawMessage `json:"locations"`
}

// UpdateParams are the params of an update, and of a request for permission.
type UpdateParams struct {
	SessionID string          `json:"sessionId"`
	Update    Update          `json:"update"`
	Options   json.RawMessage `json:"options"`
	ToolCall  json.RawMessage `json:"toolCall"`
}
