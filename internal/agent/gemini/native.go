package gemini

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// nativeLine is a line of the program's own --output-format stream-json.
type nativeLine struct {
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
}

// native reads such a line. It reports whether it made sense.
func (t *translator) native(f agent.Frame, l frame, at time.Time) bool {
	at = when(l.Timestamp, at)
	id := fmt.Sprintf("%s/%s/%d", t.state.Session, l.Timestamp, f.No)
	if l.Type != "message" || l.Role != "assistant" {
		t.Emit(t.state.closeText(at)...)
		t.state.Text = ""
	}
	switch l.Type {
	case "init":
		t.state.Session, t.state.Model = l.SessionID, l.Model
	case "message":
		switch l.Role {
		case "user":
			t.Emit(t.state.user(conversation.Main, geminiformat.Record{ID: id, Content: geminiformat.Quoted(l.Content)}, at)...)
		case "assistant":
			if t.state.Text == "" {
				t.state.Text = textID(id)
			}
			t.Emit(t.state.says(t.state.Text, l.Content, at)...)
		default:
			return false
		}
	case "tool_use":
		return t.nativeCall(l, at)
	case "tool_result":
		return t.nativeResult(l, at)
	case "error":
		t.state.Failure = l.Message
		t.Emit(ledger.Whole(conversation.Main, conversation.Block{
			ID: "error/" + id, Type: conversation.System, Status: conversation.Complete, CreatedAt: at,
			Subtype: "error", Message: geminiformat.Bounded(l.Message),
		}, at)...)
	case "result":
		t.state.Usage.InputTokens, t.state.Usage.OutputTokens = l.Stats.Input, l.Stats.Output
		if l.Status == "success" {
			t.end(session.OutcomeCompleted, "", at)
			return true
		}
		reason := t.state.Failure
		if l.Error != nil && l.Error.Message != "" {
			reason = l.Error.Message
		}
		if reason == "" {
			reason = "the agent does not say why"
		}
		t.end(session.OutcomeFailed, geminiformat.Bounded(reason), at)
	default:
		return false
	}
	return true
}

func (t *translator) nativeCall(l frame, at time.Time) bool {
	if l.ToolID == "" || t.state.Find(l.ToolID) != nil {
		return false
	}
	note := geminiformat.ToolNote{Name: l.ToolName}
	var args struct {
		AgentName string `json:"agent_name"`
	}
	if geminiformat.Decode(l.Arguments, &args) && args.AgentName != "" {
		note.Title = "Delegating to agent '" + args.AgentName + "'"
	}
	t.Emit(t.state.began(l.ToolID, note, at, at)...)
	if o := t.state.Find(l.ToolID); o != nil && len(l.Arguments) > 0 {
		o.Block.Input = l.Arguments
		t.Emit(o.Updated(conversation.Updates{Input: l.Arguments}, at))
	}
	return true
}

func (t *translator) nativeResult(l frame, at time.Time) bool {
	o := t.state.Find(l.ToolID)
	if o == nil {
		return false
	}
	c := geminiformat.ToolCall{ID: l.ToolID, Name: o.Block.Name, Args: o.Block.Input, Status: "success"}
	if o.Block.Type == conversation.Subagent {
		c.Name = geminiformat.SubagentTool
	}
	answer := map[string]string{"output": l.Output}
	if l.Status != "success" {
		c.Status = "error"
		said := l.Output
		if l.Error != nil && l.Error.Message != "" {
			said = l.Error.Message
		}
		answer = map[string]string{"error": said}
	}
	c.Result = geminiformat.Data([]map[string]geminiformat.Response{{"functionResponse": {ID: l.ToolID, Response: geminiformat.Data(answer)}}})
	use, result := t.state.ended(conversation.Main, c, at)
	t.Emit(append(use, result...)...)
	return true
}
