package claude

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/jsonscan"
)

// askTool is the tool with which the agent asks the user a question.
const askTool = "AskUserQuestion"

// rejected is the message of a rejection without a message.
const rejected = "The user does not allow this."

// asked reads a control request of the agent. It ignores requests that are not questions.
func (t *translator) asked(l record) {
	q := agent.Question{ID: jsonscan.Text(jsonscan.Field(l.raw, "request_id")), Kind: agent.Permission}
	asks := false
	var description, display []byte
	jsonscan.Fields(l.body, func(key, value []byte) {
		switch string(key) {
		case "subtype":
			asks = jsonscan.Is(value, "can_use_tool")
		case "tool_name":
			q.ToolName = jsonscan.Text(value)
		case "tool_use_id":
			q.ToolUseID = jsonscan.Text(value)
		case "input":
			q.Input = jsonscan.Clone(value)
		case "permission_suggestions":
			q.Suggestions = jsonscan.Clone(value)
		case "description":
			description = value
		case "display_name":
			display = value
		}
	})
	if !asks || q.ID == "" {
		return
	}
	q.Title = strings.TrimSpace(jsonscan.Text(display) + ": " + jsonscan.Text(description))
	if jsonscan.Text(description) == "" {
		q.Title = jsonscan.Text(display)
	}
	if q.Title == "" {
		q.Title = q.ToolName
	}
	if q.ToolName == askTool {
		q.Kind = agent.Inquiry
		q.Inquiries = inquiries(q.Input)
		if len(q.Inquiries) > 0 {
			q.Title = q.Inquiries[0].Question
		}
	}
	t.state.Waiting = append(t.state.Waiting, waiting{ID: q.ID, ToolUseID: q.ToolUseID})
	t.Out.Questions = append(t.Out.Questions, q)
}

func inquiries(input []byte) []agent.InquiryItem {
	var items []agent.InquiryItem
	jsonscan.Elements(jsonscan.Field(input, "questions"), func(raw []byte) {
		var item agent.InquiryItem
		jsonscan.Fields(raw, func(key, value []byte) {
			switch string(key) {
			case "question":
				item.Question = jsonscan.Text(value)
			case "header":
				item.Header = jsonscan.Text(value)
			case "multiSelect":
				item.Multiple = jsonscan.IsTrue(value)
			case "options":
				jsonscan.Elements(value, func(o []byte) {
					item.Options = append(item.Options, agent.InquiryOption{
						Label: jsonscan.Text(jsonscan.Field(o, "label")), Description: jsonscan.Text(jsonscan.Field(o, "description")),
					})
				})
			}
		})
		items = append(items, item)
	})
	return items
}

// responded reads a control response: the agent's response to an interrupt, or the echo of our
// answer to a question.
func (t *translator) responded(l record) {
	var id, response []byte
	success := false
	jsonscan.Fields(l.body, func(key, value []byte) {
		switch string(key) {
		case "request_id":
			id = value
		case "subtype":
			success = jsonscan.Is(value, "success")
		case "response":
			response = value
		}
	})
	if success && (jsonscan.Is(id, interruptID(t.Run.RunID)) || (t.Run.RunID == "" && jsonscan.Field(response, "still_queued") != nil)) {
		t.state.Interrupted = true
		return
	}
	t.resolved(jsonscan.Text(id))
}

// answered resolves the questions about calls that have a result, whatever the answers were.
func (t *translator) answered(l record) {
	if len(t.state.Waiting) == 0 {
		return
	}
	jsonscan.Elements(decodeMessage(l.message).content, func(raw []byte) {
		p := decodePart(raw)
		for _, w := range slices.Clone(t.state.Waiting) {
			if p.isResult() && jsonscan.Is(p.toolUseID, w.ToolUseID) {
				t.resolved(w.ID)
			}
		}
	})
}

func (t *translator) resolved(id string) {
	before := len(t.state.Waiting)
	t.state.Waiting = slices.DeleteFunc(t.state.Waiting, func(w waiting) bool { return w.ID == id })
	if len(t.state.Waiting) < before {
		t.Out.Resolved = append(t.Out.Resolved, id)
	}
}

// Answer returns the control response to a question. A permission for the session lasts for the
// session; one for always is written to the agent's local settings.
func (Adapter) Answer(q agent.Question, a agent.Answer) ([]byte, error) {
	var r permissionResult
	switch a.Decision {
	case agent.DecisionReject:
		r.Behavior, r.Message = "deny", a.Message
		if r.Message == "" {
			r.Message = rejected
		}
	case agent.DecisionOnce, agent.DecisionSession, agent.DecisionAlways:
		r.Behavior, r.UpdatedInput = "allow", q.Input
		if len(r.UpdatedInput) == 0 {
			r.UpdatedInput = json.RawMessage("{}")
		}
		if q.Kind == agent.Inquiry {
			input, err := withAnswers(q, a)
			if err != nil {
				return nil, err
			}
			r.UpdatedInput = input
		}
		if a.Decision != agent.DecisionOnce {
			updates, err := permissionUpdates(q, a.Decision)
			if err != nil {
				return nil, err
			}
			r.UpdatedPermissions = updates
		}
	default:
		return nil, fmt.Errorf("answer question %s: %q is not a decision", q.ID, a.Decision)
	}
	b, err := json.Marshal(controlResponse{
		Type: "control_response", Response: controlSuccess{Subtype: "success", RequestID: q.ID, Response: r},
	})
	if err != nil {
		return nil, fmt.Errorf("answer question %s: %w", q.ID, err)
	}
	return append(b, '\n'), nil
}

type controlResponse struct {
	Type     string         `json:"type"`
	Response controlSuccess `json:"response"`
}

type controlSuccess struct {
	Subtype   string           `json:"subtype"`
	RequestID string           `json:"request_id"`
	Response  permissionResult `json:"response"`
}

type permissionResult struct {
	Behavior           string            `json:"behavior"`
	Message            string            `json:"message,omitempty"`
	UpdatedInput       json.RawMessage   `json:"updatedInput,omitempty"`
	UpdatedPermissions []json.RawMessage `json:"updatedPermissions,omitempty"`
}

// withAnswers returns the input of askTool with the answers added.
func withAnswers(q agent.Question, a agent.Answer) (json.RawMessage, error) {
	if len(a.Answers) == 0 {
		return nil, fmt.Errorf("answer question %s: there are no answers", q.ID)
	}
	for _, item := range q.Inquiries {
		if _, ok := a.Answers[item.Question]; !ok {
			return nil, fmt.Errorf("answer question %s: %q is not answered", q.ID, item.Question)
		}
	}
	var input map[string]json.RawMessage
	if err := json.Unmarshal(q.Input, &input); err != nil {
		return nil, fmt.Errorf("answer question %s: its input: %w", q.ID, err)
	}
	texts := map[string]string{} // the form that the tool expects
	for asked, answer := range a.Answers {
		texts[asked] = answer.String()
	}
	answers, err := json.Marshal(texts)
	if err != nil {
		return nil, fmt.Errorf("answer question %s: %w", q.ID, err)
	}
	input["answers"] = answers
	return json.Marshal(input)
}

// permissionUpdates returns the agent's suggestions with the destination that matches the decision.
// Without suggestions, the whole tool is allowed.
func permissionUpdates(q agent.Question, d agent.Decision) ([]json.RawMessage, error) {
	destination := `"session"`
	if d == agent.DecisionAlways {
		destination = `"localSettings"`
	}
	var suggested []map[string]json.RawMessage
	if len(q.Suggestions) > 0 {
		if err := json.Unmarshal(q.Suggestions, &suggested); err != nil {
			return nil, fmt.Errorf("answer question %s: its suggestions: %w", q.ID, err)
		}
	}
	suggested = slices.DeleteFunc(suggested, func(s map[string]json.RawMessage) bool {
		return !jsonscan.Is(s["type"], "addRules") && !jsonscan.Is(s["type"], "addDirectories")
	})
	if len(suggested) == 0 {
		suggested = []map[string]json.RawMessage{{
			"type": json.RawMessage(`"addRules"`), "behavior": json.RawMessage(`"allow"`),
			"rules": json.RawMessage(`[{"toolName":` + strconv.Quote(q.ToolName) + `}]`),
		}}
	}
	updates := make([]json.RawMessage, len(suggested))
	for i, s := range suggested {
		s["destination"] = json.RawMessage(destination)
		b, err := json.Marshal(s)
		if err != nil {
			return nil, fmt.Errorf("answer question %s: %w", q.ID, err)
		}
		updates[i] = b
	}
	return updates, nil
}

// number parses raw as a number. It returns 0 if raw is not a number.
func number(raw []byte) float64 {
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return 0
	}
	return n
}
