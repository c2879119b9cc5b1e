package gemini

import (
	"fmt"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// responseTag opens what the program says as the user, when it repeats the past, for a result.
const responseTag = "[Function Response: "

// update reads what the agent is doing. It reports whether it made sense.
func (t *translator) update(f agent.Frame, m frame, at time.Time) bool {
	p := &m.Params
	if p.Update.Kind == "" {
		return false
	}
	if t.state.Bridged && (!t.state.Begun || t.state.Run == "") {
		return true // the past, which is known
	}
	u := p.Update
	if t.state.Session == "" {
		t.state.Session = p.SessionID
	}
	switch u.Kind {
	case "agent_message_chunk":
		if text := geminiformat.Words(u.Content); text != "" && !strings.HasPrefix(text, geminiformat.ModeTag) {
			t.says(f, text, at)
		}
	case "agent_thought_chunk":
		if text := strings.TrimPrefix(geminiformat.Words(u.Content), "****\n"); text != "" {
			if t.state.Bridged {
				t.Emit(t.state.thinks(t.state.current(), text, at)...)
				return true
			}
			t.Emit(t.state.closeText(at)...)
			t.state.Text = ""
			t.Emit(t.state.thinks(t.made(f), text, at)...)
		}
	case "user_message_chunk", "tool_call", "tool_call_update":
		if t.state.Bridged {
			return true // the bridge notes them
		}
		t.Emit(t.state.closeText(at)...)
		t.state.Text = ""
		if u.Kind == "user_message_chunk" {
			if strings.HasPrefix(geminiformat.Words(u.Content), responseTag) {
				return true // the result of a call, which the agent reports as well
			}
			t.Emit(t.state.user(conversation.Main, geminiformat.Record{ID: t.made(f), Content: u.Content}, at)...)
			return true
		}
		return t.called(u, at)
	case "available_commands_update", "plan", "current_mode_update", "usage_update", "session_info_update", "config_option_update":
	default:
		return false
	}
	return true
}

// made is an id for something that has none: no two lines of a stream make the same.
func (t *translator) made(f agent.Frame) string {
	return fmt.Sprintf("%s/%s%d", t.state.Session, t.Run.RunID, f.No)
}

// says shows a piece of an answer.
func (t *translator) says(f agent.Frame, text string, at time.Time) {
	if t.state.Bridged {
		t.Emit(t.state.says(textID(t.state.current()), text, at)...)
		return
	}
	if t.state.Text == "" {
		t.Emit(t.state.closeText(at)...)
		t.state.Text = textID(t.made(f))
	}
	t.Emit(t.state.says(t.state.Text, text, at)...)
}

// called reads a call, which without the bridge has a title alone.
func (t *translator) called(u geminiformat.Update, at time.Time) bool {
	if u.ID == "" {
		return false
	}
	if t.state.Find(u.ID) == nil && u.Status != "completed" && u.Status != "failed" {
		t.Emit(t.state.began(u.ID, geminiformat.ToolNote{Name: geminiformat.ToolName(u.ID), Title: u.Title}, at, at)...)
		return true
	}
	switch u.Status {
	case "in_progress":
		if o := t.state.Find(u.ID); o != nil && o.Block.Status == conversation.Pending {
			t.Emit(t.state.running(o, at)...)
		}
	case "completed", "failed":
		t.Resolve(&t.state.Waiting, u.ID)
		status, key := "success", "output"
		if u.Status == "failed" {
			status, key = "error", "error"
		}
		use, result := t.state.ended(conversation.Main, geminiformat.ToolCall{
			ID: u.ID, Name: geminiformat.ToolName(u.ID), Status: status,
			Result: geminiformat.Data([]map[string]geminiformat.Response{{"functionResponse": {ID: u.ID, Response: geminiformat.Data(map[string]string{key: acpformat.Shown(u.Content)})}}}),
		}, at)
		t.Emit(append(use, result...)...)
	}
	return true
}

// asked reads that the agent wants permission for a call.
func (t *translator) asked(m frame, at time.Time) bool {
	p := &m.Params
	var u geminiformat.Update
	if !geminiformat.Decode(p.ToolCall, &u) || u.ID == "" {
		return false
	}
	if t.state.Bridged && t.state.Run == "" {
		return true
	}
	if !t.state.Bridged {
		t.Emit(t.state.closeText(at)...)
		t.state.Text = ""
		if t.state.Find(u.ID) == nil {
			t.Emit(t.state.began(u.ID, geminiformat.ToolNote{Name: geminiformat.ToolName(u.ID), Title: u.Title, Asked: true}, at, at)...)
		}
	}
	title := u.Title
	if title == "" {
		title = geminiformat.ToolName(u.ID)
	}
	t.state.Waiting = append(t.state.Waiting, u.ID)
	t.Out.Questions = append(t.Out.Questions, agent.Question{
		ID: u.ID, Kind: agent.Permission, ToolName: geminiformat.ToolName(u.ID), ToolUseID: u.ID,
		Input: p.ToolCall, Title: title, Suggestions: p.Options,
	})
	return true
}

// responded reads the answer to a request. Where there is no bridge to say so, the one to a prompt
// ends the turn.
func (t *translator) responded(f agent.Frame, m frame, at time.Time) {
	if t.state.Bridged {
		return
	}
	var result struct {
		StopReason string `json:"stopReason"`
		SessionID  string `json:"sessionId"`
		Meta       struct {
			Quota struct {
				Count struct {
					Input  int64 `json:"input_tokens"`
					Output int64 `json:"output_tokens"`
				} `json:"token_count"`
				Models []struct {
					Model string `json:"model"`
				} `json:"model_usage"`
			} `json:"quota"`
		} `json:"_meta"`
	}
	geminiformat.Decode(m.Result, &result)
	if result.SessionID != "" {
		t.state.Session = result.SessionID
	}
	if e := m.Error; e != nil {
		t.Emit(ledger.Whole(conversation.Main, conversation.Block{
			ID: "error/" + t.made(f), Type: conversation.System, Status: conversation.Complete, CreatedAt: at,
			Subtype: "error", Message: geminiformat.Bounded(e.Message),
		}, at)...)
		t.end(session.OutcomeFailed, geminiformat.Bounded(e.Message), at)
		return
	}
	if result.StopReason == "" {
		t.Emit(t.state.closeText(at)...)
		t.state.Text = ""
		return
	}
	q := result.Meta.Quota
	t.state.Usage.InputTokens, t.state.Usage.OutputTokens = q.Count.Input, q.Count.Output
	if len(q.Models) > 0 {
		t.state.Model = q.Models[0].Model
	}
	if result.StopReason != "cancelled" {
		t.Emit(t.state.closeText(at)...)
	}
	outcome, reason := acpformat.Stopped(result.StopReason)
	t.end(outcome, reason, at)
}
