package demo

import (
	"encoding/json"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
)

// lineType says what a line of the agent's stdin, stdout or transcript is.
type lineType string

const (
	lineUser         lineType = "user"         // a prompt; in a subagent's conversation what it was asked
	lineInterrupt    lineType = "interrupt"    // stdin only
	lineAnswer       lineType = "answer"       // to a question; stdin only
	lineInit         lineType = "init"         // a turn begins; stream only
	lineStart        lineType = "start"        // a text or thinking block begins
	lineDelta        lineType = "delta"        // more of it; stream only
	lineAssistant    lineType = "assistant"    // the block, whole
	lineToolUse      lineType = "tool_use"     // a tool or a subagent is called
	lineToolRunning  lineType = "tool_running" // it is at work; stream only
	lineToolResult   lineType = "tool_result"  // it is done
	lineQuestion     lineType = "question"     // the turn waits for an answer; stream only
	lineAnswered     lineType = "answered"     // it does not wait any more; stream only
	lineSystem       lineType = "system"       // a notice
	lineTitle        lineType = "title"        // a name for the session
	lineResult       lineType = "result"       // the turn is over
	lineAcknowledged lineType = "acknowledged" // the prompt was known: nothing runs; stream only
)

// The kinds of block that start and assistant lines are about.
const (
	kindText     = "text"
	kindThinking = "thinking"
)

// line is every line that the agent reads or writes. Its type decides which fields it has.
type line struct {
	Type  lineType  `json:"type"`
	UUID  string    `json:"uuid,omitempty"`  // of the block, the prompt or the question
	RunID string    `json:"runId,omitempty"` // of the turn
	Agent string    `json:"agent,omitempty"` // the subagent that speaks; empty for the main one
	At    time.Time `json:"at,omitzero"`

	PromptID string `json:"promptId,omitempty"`
	Author   string `json:"author,omitempty"`
	Kind     string `json:"kind,omitempty"`    // start, assistant: text or thinking; question: an agent.QuestionKind
	Content  string `json:"content,omitempty"` // user, delta, assistant, system, title, question, answer
	Subtype  string `json:"subtype,omitempty"` // system

	Name      string          `json:"name,omitempty"`      // tool_use, question
	Input     json.RawMessage `json:"input,omitempty"`     // tool_use, question
	Subagent  string          `json:"subagent,omitempty"`  // tool_use: the subagent that was called
	ToolUseID string          `json:"toolUseId,omitempty"` // tool_result, question
	Output    json.RawMessage `json:"output,omitempty"`    // tool_result
	IsError   bool            `json:"isError,omitempty"`   // tool_result
	Aborted   bool            `json:"aborted,omitempty"`   // assistant, tool_result: aborted

	Inquiries []agent.InquiryItem `json:"inquiries,omitempty"` // question
	Decision  agent.Decision      `json:"decision,omitempty"`  // answer, answered; empty where there was none
	Answers   map[string]string   `json:"answers,omitempty"`   // answer: by what was asked

	Outcome string `json:"outcome,omitempty"` // result, acknowledged
	Reason  string `json:"reason,omitempty"`  // result, acknowledged
	Model   string `json:"model,omitempty"`   // init
	Usage   *usage `json:"usage,omitempty"`   // of the turn so far
}

// usage counts words as tokens.
type usage struct {
	Input     int64 `json:"input"`
	Output    int64 `json:"output"`
	ToolCalls int64 `json:"toolCalls"`
}

// encode returns the line as it is written, with its newline.
func (l line) encode() ([]byte, error) {
	b, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

// decodeLine reads a line of the agent's output. It reports false where the line is broken, of an
// unknown type, or lacks what its type cannot be without.
func decodeLine(data []byte) (line, bool) {
	var l line
	if err := json.Unmarshal(data, &l); err != nil {
		return line{}, false
	}
	switch l.Type {
	case lineUser, lineDelta, lineToolUse, lineToolRunning, lineToolResult, lineSystem, lineAnswered:
		return l, l.UUID != ""
	case lineQuestion:
		asks := l.Kind == string(agent.Inquiry) && len(l.Inquiries) > 0
		return l, l.UUID != "" && (asks || l.Kind == string(agent.Permission))
	case lineStart, lineAssistant:
		return l, l.UUID != "" && (l.Kind == kindText || l.Kind == kindThinking)
	case lineResult:
		return l, l.Outcome == "completed" || l.Outcome == "failed" || l.Outcome == "cancelled"
	case lineInit, lineTitle, lineAcknowledged:
		return l, true
	}
	return line{}, false
}
