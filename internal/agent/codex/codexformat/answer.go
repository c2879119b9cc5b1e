package codexformat

import (
	"encoding/json"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/question"
)

// The agent's requests that need an answer.
const (
	askCommand     = "item/commandExecution/requestApproval"
	AskFiles       = "item/fileChange/requestApproval"
	askPermissions = "item/permissions/requestApproval"
	AskUser        = "item/tool/requestUserInput"
	AskServer      = "mcpServer/elicitation/request"
)

// AskTool is the tool with which the agent asks the user a question.
const AskTool = "request_user_input"

// questionID returns the public id of a question. Request ids alone are not unique, because they
// start again in each process.
func questionID(turn string, id json.RawMessage) string {
	return turn + "/" + strings.Trim(string(id), `"`)
}

// Question decodes a request of the agent as a question. It returns false if the request is not a
// question.
func Question(l Frame) (question.Asked, bool) {
	r := l.Params
	q := question.Asked{ID: questionID(r.Turn, l.ID), Kind: question.Permission, ToolUseID: r.ItemID}
	switch l.Method {
	case askCommand:
		command, err := json.Marshal(r.Command)
		if err != nil {
			return q, false
		}
		q.ToolName = "exec_command"
		q.Input = Object("command", script(command), "cwd", filePath(r.Cwd))
		q.Title = "Run " + script(command)
		q.Suggestions = r.Amendment
	case AskFiles:
		q.ToolName, q.Input, q.Title = "apply_patch", Object("item", r.ItemID), "Change files"
	case askPermissions:
		q.ToolName, q.Input, q.Title = "request_permissions", Object("permissions", OrNull(r.Permissions)), "Get more permissions"
		q.Suggestions = r.Permissions
	case AskServer:
		q.ToolName, q.Input, q.Title = "mcp__"+r.Server, Object("message", r.Message), r.Message
		var meta struct {
			Tool   string          `json:"tool_name"`
			Params json.RawMessage `json:"tool_params"`
		}
		if Lenient(r.Meta, &meta) && meta.Tool != "" {
			q.ToolName += "__" + meta.Tool
			q.Input = OrNull(meta.Params)
		}
	case AskUser:
		q.Kind, q.ToolName = question.Inquiry, AskTool
		q.Input = AskInput(r.Questions)
		for _, item := range AsksOf(r.Questions) {
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

// Ask is a question to the user in the agent's format.
type Ask struct {
	ID       string `json:"id"`
	Header   string `json:"header"`
	Question string `json:"question"`
	Options  []struct {
		Label       string `json:"label"`
		Description string `json:"description"`
	} `json:"options"`
}

// AskInput returns the input of askTool without the fields that the agent adds in its request.
func AskInput(questions []byte) json.RawMessage { return Object("questions", AsksOf(questions)) }

// AsksOf decodes the questions of a call. It returns none if raw has another form.
func AsksOf(raw []byte) []Ask {
	asks := []Ask{}
	Lenient(raw, &asks)
	return asks
}

func (a Ask) inquiry() question.Item {
	item := question.Item{Question: a.Question, Header: a.Header}
	for _, o := range a.Options {
		item.Options = append(item.Options, question.Option{Label: o.Label, Description: o.Description})
	}
	return item
}

// Notes of this bridge in addition to the common ones: a question to the user is pending, it was
// answered, or subagents are aborted because their main turn has ended. The agent's own stream
// contains none of this.
const (
	NoteAsked    stdio.NoteType = "asked"
	NoteAnswered stdio.NoteType = "answered"
	NoteAborted  stdio.NoteType = "aborted"
)

// AskData is the data of NoteAsked and NoteAnswered, whose ID is the call's id.
type AskData struct {
	Thread string          `json:"threadId"`
	Turn   string          `json:"turnId"`
	At     int64           `json:"atMs"`
	Input  json.RawMessage `json:"input,omitempty"`
	Result json.RawMessage `json:"result,omitempty"` // in the form that the agent's tool returns to the model
	Failure
}
