package streamjson

import (
	"cmp"
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// The types of lines. Messages have a role as well.
const (
	Init       = "init"
	ToolUse    = "tool_use"
	ToolResult = "tool_result"
	Error      = "error"
	Result     = "result"
	message    = "message"
)

// Line is a line of the stream.
type Line struct {
	Type      string          `json:"type"`
	Timestamp string          `json:"timestamp"`
	SessionID string          `json:"session_id"`
	Model     string          `json:"model"`
	Role      string          `json:"role"`
	Content   string          `json:"content"`
	ToolName  string          `json:"tool_name"`
	ToolID    string          `json:"tool_id"`
	Arguments json.RawMessage `json:"parameters"`
	Status    string          `json:"status"`
	Output    string          `json:"output"`
	Message   string          `json:"message"`
	Stats     struct {
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
	} `json:"stats"`
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
}

// IsAnswer reports whether the line is a piece of the model's answer.
func (l Line) IsAnswer() bool { return l.Type == message && l.Role == "assistant" }

// IsPrompt reports whether the line is a message of a person.
func (l Line) IsPrompt() bool { return l.Type == message && l.Role == "user" }

// Began returns the call that a line of type ToolUse begins.
func (l Line) Began() geminiformat.ToolNote {
	note := geminiformat.ToolNote{Name: l.ToolName}
	var args struct {
		AgentName string `json:"agent_name"`
	}
	if geminiformat.Decode(l.Arguments, &args) && args.AgentName != "" {
		note.Title = "Delegating to agent '" + args.AgentName + "'"
	}
	return note
}

// Ended returns the call with that name and those arguments, as a line of type ToolResult ends it.
func (l Line) Ended(name string, args json.RawMessage) geminiformat.ToolCall {
	c := geminiformat.ToolCall{ID: l.ToolID, Name: name, Args: args, Status: "success"}
	answer := map[string]string{"output": l.Output}
	if l.Status != "success" {
		c.Status = "error"
		answer = map[string]string{"error": cmp.Or(l.Error.Message, l.Output)}
	}
	c.Result = geminiformat.Data([]map[string]geminiformat.Response{{"functionResponse": {ID: l.ToolID, Response: geminiformat.Data(answer)}}})
	return c
}

// Outcome returns how a line of type Result ends the turn. failure is an earlier error.
func (l Line) Outcome(failure string) (session.Outcome, string) {
	if l.Status == "success" {
		return session.OutcomeCompleted, ""
	}
	return session.OutcomeFailed, cmp.Or(l.Error.Message, failure, "the agent does not say why")
}
