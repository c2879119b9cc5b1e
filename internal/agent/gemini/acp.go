package gemini

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
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

// The kinds of update that blocks are made of.
const (
	updateText     = "agent_message_chunk"
	updateThought  = "agent_thought_chunk"
	updateUser     = "user_message_chunk"
	updateCall     = "tool_call"
	updateCallMore = "tool_call_update"
)

// isSilent reports whether updates of a kind do not affect a conversation.
func isSilent(kind string) bool {
	switch kind {
	case "available_commands_update", "plan", "current_mode_update", "usage_update", "session_info_update", "config_option_update":
		return true
	}
	return false
}

// saying is a piece of an answer, without what the program says of itself.
func saying(u geminiformat.Update) string {
	text := geminiformat.Words(u.Content)
	if strings.HasPrefix(text, geminiformat.ModeTag) {
		return ""
	}
	return text
}

// thought is a thought, without the subject that it lacks.
func thought(u geminiformat.Update) string {
	return strings.TrimPrefix(geminiformat.Words(u.Content), "****\n")
}

// update reads what the agent is doing: text streams, and the bridge notes the rest. It reports whether it
// made sense.
func (t *translator) update(u geminiformat.Update, at time.Time) bool {
	switch {
	case u.Kind == "":
		return false
	case !t.state.Begun || t.state.Run == "": // the past, which is known
		return true
	}
	switch u.Kind {
	case updateText:
		if text := saying(u); text != "" {
			t.Emit(t.state.says(textID(t.state.current()), text, at)...)
		}
	case updateThought:
		if text := thought(u); text != "" {
			t.Emit(t.state.thinks(t.state.current(), text, at)...)
		}
	case updateUser, updateCall, updateCallMore:
	default:
		return isSilent(u.Kind)
	}
	return true
}

// asked reads that the agent wants permission for a call.
func (t *translator) asked(m message) bool {
	var u geminiformat.Update
	if !geminiformat.Decode(m.Params.ToolCall, &u) || u.ID == "" {
		return false
	}
	if t.state.Run != "" {
		t.question(m, u)
	}
	return true
}

// question asks for permission for a call.
func (t *translator) question(m message, u geminiformat.Update) {
	title := u.Title
	if title == "" {
		title = geminiformat.ToolName(u.ID)
	}
	t.state.Waiting = append(t.state.Waiting, u.ID)
	t.Out.Questions = append(t.Out.Questions, agent.Question{
		ID: u.ID, Kind: agent.Permission, ToolName: geminiformat.ToolName(u.ID), ToolUseID: u.ID,
		Input: m.Params.ToolCall, Title: title, Suggestions: m.Params.Options,
	})
}
