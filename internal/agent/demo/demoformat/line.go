package demoformat

import (
	"encoding/json"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/jsonscan"
	"github.com/overwinter-dev/overwinter/internal/question"
)

// LineType is the type of a line of the agent's stdin, stdout or transcript.
type LineType string

// Types of lines.
const (
	LineUser         LineType = "user"         // a prompt, also of a subagent
	LineInterrupt    LineType = "interrupt"    // stdin only
	LineSteer        LineType = "steer"        // a prompt for the running turn; stdin only
	LineAnswer       LineType = "answer"       // the answer to a question; stdin only
	LineInit         LineType = "init"         // a turn begins; stream only
	LineStart        LineType = "start"        // a text or thinking block begins
	LineDelta        LineType = "delta"        // more text; stream only
	LineAssistant    LineType = "assistant"    // the complete block
	LineToolUse      LineType = "tool_use"     // a tool or a subagent is called
	LineToolRunning  LineType = "tool_running" // the call is running; stream only
	LineToolResult   LineType = "tool_result"  // the call has ended
	LineQuestion     LineType = "question"     // the turn waits for an answer; stream only
	LineAnswered     LineType = "answered"     // the turn no longer waits; stream only
	LineSystem       LineType = "system"       // a notice
	LineTitle        LineType = "title"        // a title for the session
	LineResult       LineType = "result"       // the turn has ended
	LineAcknowledged LineType = "acknowledged" // the prompt is known and nothing runs; stream only
	LineDeclined     LineType = "declined"     // the turn for which a prompt was sent has ended; stream only
)

// The kinds of block in start and assistant lines.
const (
	KindText     = "text"
	KindThinking = "thinking"
)

// Line is every line that the agent reads or writes. Its type decides which fields it has.
type Line struct {
	Type  LineType  `json:"type"`
	UUID  string    `json:"uuid,omitempty"`  // id of the block, the prompt or the question
	RunID string    `json:"runId,omitempty"` // of the turn
	Agent string    `json:"agent,omitempty"` // the subagent that wrote the line; empty for the main agent
	At    time.Time `json:"at,omitzero"`

	PromptID string `json:"promptId,omitempty"`
	Author   string `json:"author,omitempty"`
	Note     string `json:"note,omitempty"`    // user: information that no person wrote
	Kind     string `json:"kind,omitempty"`    // start, assistant: text or thinking; question: a question.Kind
	Content  string `json:"content,omitempty"` // user, delta, assistant, system, title, question, answer
	Subtype  string `json:"subtype,omitempty"` // system

	Name      string          `json:"name,omitempty"`      // tool_use, question
	Input     json.RawMessage `json:"input,omitempty"`     // tool_use, question
	Subagent  string          `json:"subagent,omitempty"`  // tool_use: the subagent that is called
	ToolUseID string          `json:"toolUseId,omitempty"` // tool_result, question
	Output    json.RawMessage `json:"output,omitempty"`    // tool_result
	IsError   bool            `json:"isError,omitempty"`   // tool_result
	Aborted   bool            `json:"aborted,omitempty"`   // assistant, tool_result: aborted

	Images    [][]byte                  `json:"images,omitempty"`    // tool_result
	Inquiries []question.Item           `json:"inquiries,omitempty"` // question
	Decision  question.Decision         `json:"decision,omitempty"`  // answer, answered; empty for none
	Answers   map[string]question.Words `json:"answers,omitempty"`   // answer: by question

	Outcome string `json:"outcome,omitempty"` // result, acknowledged
	Reason  string `json:"reason,omitempty"`  // result, acknowledged
	Model   string `json:"model,omitempty"`   // init
	Usage   *Usage `json:"usage,omitempty"`   // of the turn so far
}

// Usage counts words as tokens.
type Usage struct {
	Input     int64 `json:"input"`
	Output    int64 `json:"output"`
	ToolCalls int64 `json:"toolCalls"`
}

// Encode returns the encoded line, with its newline.
func (l Line) Encode() ([]byte, error) {
	b, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

// DecodeLine decodes a line of the agent's output. It returns false if the line is invalid, has an
// unknown type, or lacks a field that its type requires.
func DecodeLine(data []byte) (Line, bool) {
	if l, ok := decodeDelta(data); ok {
		return l, true
	}
	var l Line
	if err := json.Unmarshal(data, &l); err != nil {
		return Line{}, false
	}
	switch l.Type {
	case LineUser, LineDelta, LineToolUse, LineToolRunning, LineToolResult, LineSystem, LineAnswered, LineDeclined:
		return l, l.UUID != ""
	case LineQuestion:
		asks := l.Kind == string(question.Inquiry) && len(l.Inquiries) > 0
		return l, l.UUID != "" && (asks || l.Kind == string(question.Permission))
	case LineStart, LineAssistant:
		return l, l.UUID != "" && (l.Kind == KindText || l.Kind == KindThinking)
	case LineResult:
		return l, l.Outcome == "completed" || l.Outcome == "failed" || l.Outcome == "cancelled"
	case LineInit, LineTitle, LineAcknowledged:
		return l, true
	}
	return Line{}, false
}

// decodeDelta decodes a line of the most frequent type with no other fields than a text of the main
// agent has, and returns false for any other line. Decoding it with reflection takes several times
// as long.
func decodeDelta(data []byte) (l Line, ok bool) {
	plain := true
	valid := jsonscan.Fields(data, func(key, value []byte) {
		switch string(key) {
		case "type":
			l.Type = LineType(jsonscan.Text(value))
		case "uuid":
			l.UUID = jsonscan.Text(value)
		case "runId":
			l.RunID = jsonscan.Text(value)
		case "content":
			l.Content = jsonscan.Text(value)
		case "at":
			plain = plain && l.At.UnmarshalJSON(value) == nil
		default:
			plain = false
		}
		plain = plain && len(value) > 0 && value[0] == '"'
	})
	return l, valid && plain && l.Type == LineDelta && l.UUID != ""
}
