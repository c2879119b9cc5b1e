package gemini

import (
	"encoding/json"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
)

// message is a line of the Agent Client Protocol.
type message struct {
	ID     json.RawMessage           `json:"id"`
	Method string                    `json:"method"`
	Params geminiformat.UpdateParams `json:"params"`
	Result json.RawMessage           `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// isResponse reports whether a line answers a request.
func (m message) isResponse() bool {
	return m.Method == "" && len(m.ID) > 0 && (len(m.Result) > 0 || m.Error != nil)
}

// The kinds of update that become blocks.
const (
	updateText     = "agent_message_chunk"
	updateThought  = "agent_thought_chunk"
	updateUser     = "user_message_chunk"
	updateCall     = "tool_call"
	updateCallMore = "tool_call_update"
)

// isSilent reports whether updates of a kind do not affect the conversation.
func isSilent(kind string) bool {
	switch kind {
	case "available_commands_update", "plan", "current_mode_update", "usage_update", "session_info_update", "config_option_update":
		return true
	}
	return false
}

// saying returns a piece of an answer, without the program's messages about itself.
func saying(u geminiformat.Update) string {
	text := geminiformat.Words(u.Content)
	if strings.HasPrefix(text, geminiformat.ModeTag) {
		return ""
	}
	return text
}

// thought returns the text of a thought, without an empty subject.
func thought(u geminiformat.Update) string {
	return strings.TrimPrefix(geminiformat.Words(u.Content), "****\n")
}
