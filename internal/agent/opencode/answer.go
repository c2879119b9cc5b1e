package opencode

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// toolRef identifies the call that a question is about.
type toolRef struct {
	MessageID string `json:"messageID"`
	CallID    string `json:"callID"`
}

type permissionEvent struct {
	ID         string          `json:"id"`
	Permission string          `json:"permission"`
	Patterns   []string        `json:"patterns"`
	Metadata   json.RawMessage `json:"metadata"`
	Always     json.RawMessage `json:"always"`
	Tool       *toolRef        `json:"tool"`
}

// permissionAsked reads the report that a call waits for permission.
func (t *translator) permissionAsked(e permissionEvent, _ time.Time) {
	q := agent.Question{
		ID: e.ID, Kind: agent.Permission, ToolName: e.Permission, Input: e.Metadata, Suggestions: e.Always, Title: e.Permission,
	}
	if o := t.calling(e.Tool); o != nil {
		q.ToolUseID = o.Block.ID
		if o.Block.Type == conversation.ToolUse && families[o.Block.Name] == e.Permission {
			q.ToolName = o.Block.Name
		}
		if len(o.Block.Input) > 0 {
			q.Input = o.Block.Input
		}
	}
	if len(e.Patterns) > 0 {
		q.Title = opencodeformat.Bounded(strings.TrimSpace(q.ToolName+": "+strings.Join(e.Patterns, ", ")), opencodeformat.MaxWords)
	}
	t.asked(q)
}

// families maps tools to the name under which OpenCode asks about them.
var families = map[string]string{
	"write": "edit", "patch": "edit", "apply_patch": "edit", "multiedit": "edit",
}

type questionEvent struct {
	ID        string          `json:"id"`
	Questions json.RawMessage `json:"questions"`
	Tool      *toolRef        `json:"tool"`
}

type questionInfo struct {
	Question string `json:"question"`
	Header   string `json:"header"`
	Multiple bool   `json:"multiple"`
	Options  []struct {
		Label       string `json:"label"`
		Description string `json:"description"`
	} `json:"options"`
}

// questionAsked reads a question of the agent to the user.
func (t *translator) questionAsked(e questionEvent, _ time.Time) {
	q := agent.Question{ID: e.ID, Kind: agent.Inquiry, ToolName: questionTool, Input: e.Questions}
	var infos []questionInfo
	if json.Unmarshal(e.Questions, &infos) != nil {
		return // it could not be answered
	}
	for _, info := range infos {
		item := agent.InquiryItem{Question: info.Question, Header: info.Header, Multiple: info.Multiple}
		for _, o := range info.Options {
			item.Options = append(item.Options, agent.InquiryOption{Label: o.Label, Description: o.Description})
		}
		q.Inquiries = append(q.Inquiries, item)
	}
	if len(q.Inquiries) > 0 {
		q.Title = q.Inquiries[0].Question
	}
	if o := t.calling(e.Tool); o != nil {
		q.ToolUseID = o.Block.ID
	}
	t.asked(q)
}

// questionTool is the tool with which the agent asks the user a question.
const questionTool = "question"

// calling returns the call that a question is about, or nil.
func (t *translator) calling(ref *toolRef) *openBlock {
	if ref == nil || ref.CallID == "" {
		return nil
	}
	for _, o := range slices.Backward(t.state.Open) {
		if o.Call == ref.CallID && (ref.MessageID == "" || o.Message == ref.MessageID) {
			return o
		}
	}
	return nil
}

// maxWaiting bounds the open questions that are kept. The agent has one for each running call.
const maxWaiting = 128

func (t *translator) asked(q agent.Question) {
	if q.ID != "" && len(t.state.Waiting) < maxWaiting {
		t.Ask(&t.state.Waiting, q)
	}
}

type answeredEvent struct {
	RequestID    string `json:"requestID"`
	PermissionID string `json:"permissionID"`
	ID           string `json:"id"`
}

// answered reads the report that a question no longer waits.
func (t *translator) answered(e answeredEvent, _ time.Time) {
	for _, id := range []string{e.RequestID, e.PermissionID, e.ID} {
		if t.Resolve(&t.state.Waiting, id) {
			return
		}
	}
}

// rejected is the message of a rejection without a message. OpenCode needs one: it ends the turn on
// a rejection without a message.
const rejected = "The user does not allow this."

// permissionReply is the body of an answer to a permission question.
type permissionReply struct {
	Reply   string `json:"reply"`
	Message string `json:"message,omitempty"`
}

// Answer returns the line that answers a question. To OpenCode, session and always are the same: a
// permission lasts as long as its process.
func (Adapter) Answer(q agent.Question, a agent.Answer) ([]byte, error) {
	r := opencodeformat.Reply{Kind: opencodeformat.ReplyPermission}
	var body any
	switch {
	case q.Kind == agent.Inquiry && a.Decision == agent.DecisionReject:
		r.Kind, r.Reject, body = opencodeformat.ReplyQuestion, true, struct{}{}
	case q.Kind == agent.Inquiry:
		answers, err := answersOf(q, a)
		if err != nil {
			return nil, err
		}
		r.Kind, body = opencodeformat.ReplyQuestion, map[string][][]string{"answers": answers}
	case a.Decision == agent.DecisionReject:
		p := permissionReply{Reply: "reject", Message: a.Message}
		if strings.TrimSpace(p.Message) == "" {
			p.Message = rejected
		}
		body = p
	case a.Decision == agent.DecisionOnce:
		body = permissionReply{Reply: "once"}
	case a.Decision == agent.DecisionSession, a.Decision == agent.DecisionAlways:
		body = permissionReply{Reply: "always"}
	default:
		return nil, fmt.Errorf("answer question %s: %q is not a decision", q.ID, a.Decision)
	}
	var err error
	if r.Body, err = json.Marshal(body); err != nil {
		return nil, fmt.Errorf("answer question %s: %w", q.ID, err)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("answer question %s: %w", q.ID, err)
	}
	return stdio.Command{Type: stdio.Answer, ID: q.ID, Data: data}.Encode()
}

// answersOf returns the answers in the order of the questions. If several options may be chosen, a
// text has one per line.
func answersOf(q agent.Question, a agent.Answer) ([][]string, error) {
	answers := make([][]string, len(q.Inquiries))
	for i, item := range q.Inquiries {
		answer, ok := a.Answers[item.Question]
		if !ok {
			return nil, fmt.Errorf("answer question %s: %q is not answered", q.ID, item.Question)
		}
		answers[i] = answer.Texts()
		if item.Multiple && !answer.IsList() {
			answers[i] = strings.Split(strings.TrimSpace(answer.String()), "\n")
		}
	}
	return answers, nil
}
