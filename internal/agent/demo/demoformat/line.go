package demoformat

import (
	"encoding/json"
	"time"

	"github.com/overwinter-dev/overwinter/internal/question"
)

// LineType says what a line of the agent's stdin, stdout or transcript is.
type LineType string

// Types of lines.
const (
	LineUser         LineType = "user"         // a prompt; in a subagent's conversation what it was asked
	LineInterrupt    LineType = "interrupt"    // stdin only
	LineSteer        LineType = "steer"        // a prompt for the running turn; stdin only
	LineAnswer       LineType = "answer"       // to a question; stdin only
	LineInit         LineType = "init"         // a turn begins; stream only
	LineStart        LineType = "start"        // a text or thinking block begins
	LineDelta        LineType = "delta"        // more of it; stream only
	LineAssistant    LineType = "assistant"    // the block, whole
	LineToolUse      LineType = "tool_use"     // a tool or a subagent is called
	LineToolRunning  LineType = "tool_running" // it is at work; stream only
	LineToolResult   LineType = "tool_result"  // it is done
	LineQuestion     LineType = "question"     // the turn waits for an answer; stream only
	LineAnswered     LineType = "answered"     // it does not wait any more; stream only
	LineSystem       LineType = "system"       // a notice
	LineTitle        LineType = "title"        // a name for the session
	LineResult       LineType = "result"       // the turn is over
	LineAcknowledged LineType = "acknowledged" // the prompt was known: nothing runs; stream only
	LineDeclined     LineType = "declined"     // the turn that a prompt was for is over; stream only
)

// The kinds of block that start and assistant lines are about.
const (
	KindText     = "text"
	KindThinking = "thinking"
)

// Line is every line that the agent reads or writes. Its type decides which fields it has.
type Line struct {
	Type  LineType  `json:"type"`
	UUID  string    `json:"uuid,omitempty"`  // of the block, the prompt or the question
	RunID string    `json:"runId,omitempty"` // of the turn
	Agent string    `json:"agent,omitempty"` // the subagent that speaks; empty for the main one
	At    time.Time `json:"at,omitzero"`

	PromptID string `json:"promptId,omitempty"`
	Author   string `json:"author,omitempty"`
	Note     string `json:"note,omitempty"`    // user: what no person wrote
	Kind     string `json:"kind,omitempty"`    // start, assistant: text or thinking; question: an question.Kind
	Content  string `json:"content,omitempty"` // user, delta, assistant, system, title, question, answer
	Subtype  string `json:"subtype,omitempty"` // system

	Name      string          `json:"name,omitempty"`      // tool_use, question
	Input     json.RawMessage `json:"input,omitempty"`     // tool_use, question
	Subagent  string          `json:"subagent,omitempty"`  // tool_use: the subagent that was called
	ToolUseID string          `json:"toolUseId,omitempty"` // tool_result, question
	Output    json.RawMessage `json:"output,omitempty"`    // tool_result
	IsError   bool            `json:"isError,omitempty"`   // tool_result
	Aborted   bool            `json:"aborted,omitempty"`   // assistant, tool_result: aborted

	Images    [][]byte                 `json:"images,omitempty"`    // tool_result
	Inquiries []question.Item          `json:"inquiries,omitempty"` // question
	Decision  question.Decision        `json:"decision,omitempty"`  // answer, answered; empty where there was none
	Answers   map[string]question.Said `json:"answers,omitempty"`   // answer: by what was asked

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

// Encode returns the line as it is written, with its newline.
func (l Line) Encode() ([]byte, error) {
	b, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

// DecodeLine reads a line of the agent's output. It reports false where the line is broken, of an
// unknown type, or lacks what its type cannot be without.
func DecodeLine(data []byte) (Line, bool) {
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
