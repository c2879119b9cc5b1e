package codex

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// The requests of the agent that need an answer.
const (
	askCommand     = "item/commandExecution/requestApproval"
	askFiles       = "item/fileChange/requestApproval"
	askPermissions = "item/permissions/requestApproval"
	askUser        = "item/tool/requestUserInput"
	askServer      = "mcpServer/elicitation/request"
)

// askTool is the tool with which the agent asks the user something.
const askTool = "request_user_input"

// waiting is a question that is open.
type waiting struct {
	ID      string          `json:"id"`
	Request json.RawMessage `json:"request"`
	// Asks is the call of askTool that the question is.
	Asks   string `json:"asks,omitempty"`
	Thread string `json:"thread,omitempty"`
}

// questionID is the public id of a question. Request ids alone are not unique: they start again
// with each process.
func questionID(turn string, id json.RawMessage) string {
	return turn + "/" + strings.Trim(string(id), `"`)
}

// question reads a request of the agent as a question; false means that it is none.
func question(l frame) (agent.Question, bool) {
	r := l.Params
	q := agent.Question{ID: questionID(r.Turn, l.ID), Kind: agent.Permission, ToolUseID: r.ItemID}
	switch l.Method {
	case askCommand:
		command, err := json.Marshal(r.Command)
		if err != nil {
			return q, false
		}
		q.ToolName = "exec_command"
		q.Input = object("command", script(command), "cwd", filePath(r.Cwd))
		q.Title = "Run " + script(command)
		q.Suggestions = r.Amendment
	case askFiles:
		q.ToolName, q.Input, q.Title = "apply_patch", object("item", r.ItemID), "Change files"
	case askPermissions:
		q.ToolName, q.Input, q.Title = "request_permissions", object("permissions", orNull(r.Permissions)), "Get more permissions"
		q.Suggestions = r.Permissions
	case askServer:
		q.ToolName, q.Input, q.Title = "mcp__"+r.Server, object("message", r.Message), r.Message
		var meta struct {
			Tool   string          `json:"tool_name"`
			Params json.RawMessage `json:"tool_params"`
		}
		if lenient(r.Meta, &meta) && meta.Tool != "" {
			q.ToolName += "__" + meta.Tool
			q.Input = orNull(meta.Params)
		}
	case askUser:
		q.Kind, q.ToolName = agent.Inquiry, askTool
		q.Input = askInput(r.Questions)
		for _, item := range asksOf(r.Questions) {
			q.Inquiries = append(q.Inquiries, item.inquiry())
		}
		if len(q.Inquiries) == 0 {
			return q, false
		}
		q.Title = q.Inquiries[0].Question
	default:
		return q, false
	}
	if r.Reason != "" {
		q.Title += ": " + r.Reason
	}
	return q, true
}

// ask is a question to the user, as the agent writes it.
type ask struct {
	ID       string `json:"id"`
	Header   string `json:"header"`
	Question string `json:"question"`
	Options  []struct {
		Label       string `json:"label"`
		Description string `json:"description"`
	} `json:"options"`
}

// askInput is the input of askTool, without what the agent adds to it in its request.
func askInput(questions []byte) json.RawMessage { return object("questions", asksOf(questions)) }

func asksOf(raw []byte) []ask {
	asks := []ask{}
	lenient(raw, &asks)
	return asks
}

func (a ask) inquiry() agent.InquiryItem {
	item := agent.InquiryItem{Question: a.Question, Header: a.Header}
	for _, o := range a.Options {
		item.Options = append(item.Options, agent.InquiryOption{Label: o.Label, Description: o.Description})
	}
	return item
}

// asked reads a request of the agent. Those that are no questions are handled by the bridge.
func (t *translator) asked(l frame, at time.Time) {
	r := l.Params
	q, ok := question(l)
	if !ok {
		return
	}
	w := waiting{ID: q.ID, Request: l.ID}
	where := t.state.conversation(r.Thread)
	switch l.Method {
	case askFiles:
		if o := t.state.find(where, r.ItemID); o != nil && len(o.Block.Input) > 0 {
			q.Input = o.Block.Input
		}
	case askServer:
		for _, o := range t.state.Open {
			if o.Conversation == where && o.Block.Name == q.ToolName {
				q.ToolUseID = o.Block.ID
			}
		}
	case askUser:
		w.Asks, w.Thread = r.ItemID, r.Thread
		t.emit(t.state.begin(place{thread: r.Thread, turn: r.Turn, at: at}, askItem(r.ItemID, q.Input, 0))...)
	}
	t.state.Waiting = append(t.state.Waiting, w)
	t.out.Questions = append(t.out.Questions, q)
}

// resolved reads that a request waits no more.
func (t *translator) resolved(request []byte, at time.Time) {
	kept := t.state.Waiting[:0]
	for _, w := range t.state.Waiting {
		if string(w.Request) == string(request) {
			t.out.Resolved = append(t.out.Resolved, w.ID)
			if o := t.state.find(t.state.conversation(w.Thread), w.Asks); o != nil && !t.state.Noted {
				t.emit(t.state.close(o, conversation.Success, at))
			}
			continue
		}
		kept = append(kept, w)
	}
	t.state.Waiting = kept
}

// Notes of this bridge in addition to the common ones: a question to the user is pending, its answer,
// and that subagents are aborted because their main turn is over. The agent's own stream has none of
// it.
const (
	noteAsked    stdio.NoteType = "asked"
	noteAnswered stdio.NoteType = "answered"
	noteAborted  stdio.NoteType = "aborted"
)

// askData is the data of noteAsked and noteAnswered, whose ID is that of the call.
type askData struct {
	Thread string          `json:"threadId"`
	Turn   string          `json:"turnId"`
	At     int64           `json:"atMs"`
	Input  json.RawMessage `json:"input,omitempty"`
	Result json.RawMessage `json:"result,omitempty"` // as the agent's tool gives it to the model
}

// askItem is the call of askTool. The agent has no item for it.
func askItem(id string, input json.RawMessage, ms int64) item {
	return item{kind: kindAsk, id: id, name: askTool, input: input, started: ms}
}

// question reads what the bridge says of a question to the user.
func (r *reader) question(n stdio.Note, at time.Time) []conversation.Event {
	var d askData
	if !lenient(n.Data, &d) || n.ID == "" {
		return nil
	}
	p := place{thread: d.Thread, turn: d.Turn, at: at}
	it := askItem(n.ID, d.Input, d.At)
	if n.Type == noteAsked {
		return r.begin(p, it)
	}
	if r.find(r.conversation(p.thread), it.id) == nil {
		return nil
	}
	it.completed, it.output = d.At, string(d.Result)
	return r.finish(p, it)
}

// deadline shows why the bridge has broken a turn off.
func (r *reader) deadline(n stdio.Note, at time.Time) []conversation.Event {
	var d askData
	if !lenient(n.Data, &d) || d.Turn == "" {
		return nil
	}
	p := place{thread: d.Thread, turn: d.Turn, at: at}
	return whole(r.conversation(p.thread), conversation.Block{
		ID: d.Turn + "/deadline", Type: conversation.System, Status: conversation.Complete,
		CreatedAt: p.created(d.At), Subtype: "error", Message: bounded(n.Message),
	}, at)
}

// Answer returns the input that answers a question, sent through the bridge. The message of a
// rejection is sent to the agent as a message of its user.
func (Adapter) Answer(q agent.Question, a agent.Answer) ([]byte, error) {
	result, err := answer(q, a)
	if err != nil {
		return nil, fmt.Errorf("answer question %s: %w", q.ID, err)
	}
	data, err := json.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("answer question %s: %w", q.ID, err)
	}
	c := stdio.Command{Type: stdio.Answer, ID: q.ID, Data: data}
	if a.Decision == agent.DecisionReject {
		c.Content = a.Message
	}
	return c.Encode()
}

func answer(q agent.Question, a agent.Answer) (map[string]any, error) {
	allowed := false
	switch a.Decision {
	case agent.DecisionOnce, agent.DecisionSession, agent.DecisionAlways:
		allowed = true
	case agent.DecisionReject:
	default:
		return nil, fmt.Errorf("there is no decision %q", a.Decision)
	}
	switch {
	case q.Kind == agent.Inquiry:
		return inquiryAnswer(q, a, allowed)
	case strings.HasPrefix(q.ToolName, "mcp__"):
		action := map[bool]string{true: "accept", false: "decline"}[allowed]
		result := map[string]any{"action": action, "content": map[string]any{}}
		if a.Decision == agent.DecisionSession || a.Decision == agent.DecisionAlways {
			result["_meta"] = map[string]any{"persist": a.Decision}
		}
		return result, nil
	case q.ToolName == "request_permissions":
		granted := json.RawMessage(`{}`)
		if allowed {
			granted = orNull(q.Suggestions)
		}
		scope := "session"
		if a.Decision == agent.DecisionOnce || !allowed {
			scope = "turn"
		}
		return map[string]any{"permissions": granted, "scope": scope}, nil
	}
	switch {
	case !allowed:
		return map[string]any{"decision": "decline"}, nil
	case a.Decision == agent.DecisionOnce:
		return map[string]any{"decision": "accept"}, nil
	case a.Decision == agent.DecisionAlways && len(q.Suggestions) > 0 && string(q.Suggestions) != "null":
		return map[string]any{"decision": map[string]any{
			"acceptWithExecpolicyAmendment": map[string]any{"execpolicy_amendment": q.Suggestions},
		}}, nil
	}
	return map[string]any{"decision": "acceptForSession"}, nil
}

// inquiryAnswer says what the user said, or nothing.
func inquiryAnswer(q agent.Question, a agent.Answer, allowed bool) (map[string]any, error) {
	var input struct {
		Questions json.RawMessage `json:"questions"`
	}
	if err := json.Unmarshal(q.Input, &input); err != nil {
		return nil, fmt.Errorf("the question's input: %w", err)
	}
	answers := map[string]any{}
	for _, ask := range asksOf(input.Questions) {
		said, ok := a.Answers[ask.Question]
		switch {
		case !allowed && a.Message != "":
			answers[ask.ID] = map[string]any{"answers": []string{a.Message}}
		case !allowed:
		case !ok:
			return nil, fmt.Errorf("there is no answer to %q", ask.Question)
		default:
			answers[ask.ID] = map[string]any{"answers": []string{said}}
		}
	}
	return map[string]any{"answers": answers}, nil
}
