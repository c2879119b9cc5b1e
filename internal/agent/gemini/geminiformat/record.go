package geminiformat

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// The types of record in a chat file that become blocks. There are others, such as info.
const (
	UserRecord   = "user"
	GeminiRecord = "gemini"
)

// Record is a line of a chat file: its header, a message, or a patch of earlier lines.
type Record struct {
	ID        string          `json:"id"`
	Timestamp string          `json:"timestamp"`
	Type      string          `json:"type"`
	Content   json.RawMessage `json:"content"`
	// Display is the content of a message as shown to a person, if it differs from the content that
	// the model received.
	Display   json.RawMessage `json:"displayContent"`
	Thoughts  []thought       `json:"thoughts"`
	Tokens    *tokens         `json:"tokens"`
	Model     string          `json:"model"`
	ToolCalls []ToolCall      `json:"toolCalls"`

	// Of a header.
	SessionID string `json:"sessionId"`
	Kind      string `json:"kind"`
	StartTime string `json:"startTime"`
	// Messages are the messages in a header. In older files these are all messages.
	Messages []json.RawMessage `json:"messages"`

	// Of a patch.
	Set *struct {
		Messages []json.RawMessage `json:"messages"`
	} `json:"$set"`
	RewindTo string `json:"$rewindTo"`
}

type thought struct {
	Subject     string `json:"subject"`
	Description string `json:"description"`
	Timestamp   string `json:"timestamp"`
}

// Text returns the thought as the agent prints it.
func (t thought) Text() string {
	if t.Subject == "" {
		return t.Description
	}
	return "**" + t.Subject + "**\n" + t.Description
}

type tokens struct {
	Input    int64 `json:"input"` // including cached tokens
	Output   int64 `json:"output"`
	Thoughts int64 `json:"thoughts"`
}

// ToolCall is a call that has ended. The agent stores a call when it ends.
type ToolCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Args      json.RawMessage `json:"args"`
	Result    json.RawMessage `json:"result"`
	Status    string          `json:"status"`
	Timestamp string          `json:"timestamp"`
	AgentID   string          `json:"agentId"` // of the subagent, if the call started one
}

// Ended reports whether the call has ended.
func (c ToolCall) Ended() bool {
	return c.ID != "" && (c.Status == "success" || c.Status == "error" || c.Status == "cancelled")
}

// Part is a part of a message.
type Part struct {
	Text     string          `json:"text"`
	Thought  json.RawMessage `json:"thought"`
	Response *Response       `json:"functionResponse"`
	Call     json.RawMessage `json:"functionCall"`
	Data     *Blob           `json:"inlineData"`
}

// Blob is a part that is not text.
type Blob struct {
	MimeType string `json:"mimeType"`
	Data     string `json:"data"`
}

// Response is the response of a tool to the model.
type Response struct {
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Response json.RawMessage `json:"response"`
	Parts    json.RawMessage `json:"parts,omitempty"` // other content, such as images
}

// Decode decodes as much of a JSON value as fits v and skips fields of another type. It reports
// whether raw is JSON of the right kind.
func Decode(raw []byte, v any) bool {
	err := json.Unmarshal(raw, v)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return wrong.Field != ""
	}
	return err == nil
}

// parts returns the parts of a content, which is a string, a part, or a list of either.
func parts(raw json.RawMessage) []Part {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return nil
	}
	switch raw[0] {
	case '"':
		var s string
		if json.Unmarshal(raw, &s) != nil || s == "" {
			return nil
		}
		return []Part{{Text: s}}
	case '[':
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			return nil
		}
		var out []Part
		for _, r := range list {
			if r = bytes.TrimSpace(r); len(r) > 0 && r[0] != '[' {
				out = append(out, parts(r)...)
			}
		}
		return out
	case '{':
		var p Part
		if Decode(raw, &p) {
			return []Part{p}
		}
	}
	return nil
}

// Words returns the text of a content, without thoughts and calls.
func Words(raw json.RawMessage) string {
	var s strings.Builder
	for _, p := range parts(raw) {
		if !IsTrue(p.Thought) {
			s.WriteString(p.Text)
		}
	}
	return s.String()
}

// Text returns the text that a person wrote, without reminders. It is empty for other messages to
// the model.
func (r Record) Text() string {
	raw := r.Content
	if len(r.Display) > 0 && string(r.Display) != "null" {
		raw = r.Display
	}
	s := Words(raw)
	if rest := stdio.AfterReminder(s); rest != "" || !slices.ContainsFunc(parts(raw), func(p Part) bool { return p.Text == "" }) {
		s = rest // otherwise the message has only an image, not a note
	}
	for _, tag := range []string{"<session_context>", "<hook_context>"} {
		if strings.HasPrefix(strings.TrimSpace(s), tag) {
			return ""
		}
	}
	return s
}

// Responses returns the tool responses in a message.
func (r Record) Responses() []Response {
	var out []Response
	for _, p := range parts(r.Content) {
		if p.Response != nil {
			out = append(out, *p.Response)
		}
	}
	return out
}

// Output returns the output of a tool, as a JSON string if it is text, and whether it is an error.
func (r Response) Output() (json.RawMessage, bool) {
	var fields struct {
		Output json.RawMessage `json:"output"`
		Error  json.RawMessage `json:"error"`
	}
	if !Decode(r.Response, &fields) {
		return r.Response, false
	}
	switch {
	case len(fields.Output) > 0:
		return fields.Output, false
	case len(fields.Error) > 0:
		return fields.Error, true
	case len(r.Response) == 0:
		return json.RawMessage(`""`), false
	}
	return r.Response, false
}

// Output returns the output of a call. Content other than text becomes a label.
func (c ToolCall) Output() (json.RawMessage, bool) {
	out, isError := json.RawMessage(nil), false
	var others []string
	for _, p := range parts(c.Result) {
		switch {
		case p.Response != nil && (p.Response.ID == c.ID || p.Response.ID == "") && out == nil:
			out, isError = p.Response.Output()
		case p.Data != nil:
			others = append(others, "["+p.Data.MimeType+"]")
		case p.Text != "" && p.Response == nil:
			others = append(others, p.Text)
		}
	}
	if len(others) > 0 {
		var s string
		if len(out) == 0 || json.Unmarshal(out, &s) == nil {
			if s != "" {
				others = append([]string{s}, others...)
			}
			out = Quoted(strings.Join(others, "\n"))
		}
	}
	if out == nil {
		out = json.RawMessage(`""`)
	}
	return out, isError
}

// Images returns the images in the output of a call.
func (c ToolCall) Images() []conversation.ImageData {
	var out []conversation.ImageData
	add := func(b *Blob) {
		if b == nil || len(out) >= conversation.MaxBlockImages {
			return
		}
		if i, ok := conversation.DecodeImage(b.Data); ok {
			out = append(out, i)
		}
	}
	for _, p := range parts(c.Result) {
		add(p.Data)
		if p.Response != nil {
			for _, inner := range parts(p.Response.Parts) {
				add(inner.Data)
			}
		}
	}
	return out
}

// IsTrue reports whether raw is true.
func IsTrue(raw json.RawMessage) bool { return string(raw) == "true" }

// Quoted returns s as a JSON string.
func Quoted(s string) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		panic("gemini: encode a string: " + err.Error()) // a string can always be encoded
	}
	return b
}

// Time parses a time of the agent. It returns other if s is not a time.
func Time(s string, other time.Time) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return other
	}
	return t.UTC()
}
