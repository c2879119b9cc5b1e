package agent

import "encoding/json"

// QuestionKind says what an agent waits for.
type QuestionKind string

// The kinds of question.
const (
	// Permission: may the agent call this tool with this input?
	Permission QuestionKind = "permission"
	// Inquiry: the agent asks the user something in words.
	Inquiry QuestionKind = "question"
)

// Question is what an agent waits for an answer to. The turn stands still until it has one.
type Question struct {
	ID        string          `json:"id"` // the agent's own, unique in its session
	Kind      QuestionKind    `json:"kind"`
	ToolName  string          `json:"toolName"`
	ToolUseID string          `json:"toolUseId"` // block id of the call it is about
	Input     json.RawMessage `json:"input"`     // of the tool, as the agent would call it
	Title     string          `json:"title"`     // what is asked, for people
	Inquiries []InquiryItem   `json:"inquiries,omitempty"`
	// Suggestions are the agent's own words for "always", handed back by Answer.
	Suggestions json.RawMessage `json:"suggestions,omitempty"`
}

// InquiryItem is one thing that an Inquiry asks.
type InquiryItem struct {
	Question string          `json:"question"` // the key of its answer
	Header   string          `json:"header,omitempty"`
	Multiple bool            `json:"multiple,omitempty"` // more than one option may be chosen
	Options  []InquiryOption `json:"options,omitempty"`
}

// InquiryOption is an answer that the agent offers. Others may be given.
type InquiryOption struct {
	Label       string `json:"label"`
	Description string `json:"description,omitempty"`
}

// Decision is the answer to a question in one word.
type Decision string

// The decisions. An Inquiry is answered with once.
const (
	DecisionOnce    Decision = "once"    // allowed this time
	DecisionSession Decision = "session" // and whatever is like it until the session's agent ends
	DecisionAlways  Decision = "always"  // and whatever is like it from now on
	DecisionReject  Decision = "reject"  // not allowed; the agent goes on without it
)

// Answer is what somebody said to a question.
type Answer struct {
	Decision Decision `json:"decision"`
	// Answers has the answer to each InquiryItem by its Question.
	Answers map[string]string `json:"answers,omitempty"`
	// Message is told to the agent with a rejection.
	Message string `json:"message,omitempty"`
}

// Answerer is an adapter whose agent asks questions. Answer is pure, like the rest of an adapter.
type Answerer interface {
	// Answer is what is written to the agent's stdin to answer q. It fails for an answer that does
	// not fit the question.
	Answer(q Question, a Answer) ([]byte, error)
}
