package question

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/failure"
)

// How long a question waits for an answer.
const (
	// DefaultTimeout is for sessions that sleep while they wait, AwakeTimeout for those that do not.
	DefaultTimeout = 3 * 24 * time.Hour
	AwakeTimeout   = 5 * time.Minute
	MinTimeout     = time.Second
	MaxTimeout     = 30 * 24 * time.Hour
)

// Bounds of an answer.
const (
	MaxAnswerRunes = 16 << 10 // of each answer in words, and of the message
	MaxAnswers     = 64
)

// Bounds of an agent's questions. A larger question is rejected, even if a policy would decide it.
const (
	MaxBytes        = 1 << 20  // of a question with its tool input, as JSON
	MaxPerTurn      = 1000     // that people are asked in a turn
	MaxBytesPerTurn = 64 << 20 // of all questions of a turn, including those that a policy decides
	MaxIDBytes      = 4 << 10  // of the agent's id of a question
)

// Kind is the kind of answer that an agent waits for.
type Kind string

// The kinds of question.
const (
	// Permission: the agent asks whether it may call a tool with an input.
	Permission Kind = "permission"
	// Inquiry: the agent asks a question in words.
	Inquiry Kind = "question"
)

// Status is the status of a question. Every status except open is final.
type Status string

// The statuses of questions.
const (
	Open      Status = "open"
	Answered  Status = "answered"
	Expired   Status = "expired"   // no answer in time; the agent got a rejection
	Cancelled Status = "cancelled" // the agent no longer waits
)

// Reasons of a question that was not answered, in addition to session.ReasonWithdrawn: by the agent, in the
// middle of its turn.
const (
	ReasonExpired   = "expired"
	ReasonTurnEnded = "turn_ended" // with the turn, whatever ended it
	ReasonPolicy    = "policy"     // decided by the session's permissions; not shown to people
)

// Asked is an agent's question, as parsed by its adapter.
type Asked struct {
	ID        string          `json:"id"` // the agent's own, unique in its run
	Kind      Kind            `json:"kind"`
	ToolName  string          `json:"toolName"`
	ToolUseID string          `json:"toolUseId"`       // block id of its call
	Input     json.RawMessage `json:"input,omitempty"` // of the tool, as the agent would call it
	Title     string          `json:"title"`           // what is asked, for people
	Inquiries []Item          `json:"inquiries,omitempty"`
	// Suggestions is the agent's representation of "always", returned with the answer.
	Suggestions json.RawMessage `json:"suggestions,omitempty"`
}

// Map returns a copy with its texts mapped: plain texts by text, the agent's own JSON by raw.
func (a Asked) Map(text func(string) string, raw func(json.RawMessage) json.RawMessage) Asked {
	a.ToolName, a.ToolUseID, a.Title = text(a.ToolName), text(a.ToolUseID), text(a.Title)
	a.Input, a.Suggestions = raw(a.Input), raw(a.Suggestions)
	a.Inquiries = slices.Clone(a.Inquiries)
	for i, item := range a.Inquiries {
		item.Question, item.Header, item.Options = text(item.Question), text(item.Header), slices.Clone(item.Options)
		for j, o := range item.Options {
			item.Options[j] = Option{Label: text(o.Label), Description: text(o.Description)}
		}
		a.Inquiries[i] = item
	}
	return a
}

// Item is one question of an Inquiry.
type Item struct {
	Question string   `json:"question"` // the key of its answer
	Header   string   `json:"header,omitempty"`
	Multiple bool     `json:"multiple,omitempty"` // more than one option may be chosen
	Options  []Option `json:"options,omitempty"`
}

// Option is an answer that the agent offers. Other answers are possible.
type Option struct {
	Label       string `json:"label"`
	Description string `json:"description,omitempty"`
}

// Decision is a one-word answer to a question.
type Decision string

// The decisions. An Inquiry is answered with once, or rejected.
const (
	Once       Decision = "once"    // allowed this time
	ForSession Decision = "session" // and similar calls until the session's agent ends
	Always     Decision = "always"  // and similar calls from now on
	Reject     Decision = "reject"  // not allowed; the agent continues without it
)

// Decisions lists all decisions.
func Decisions() []Decision {
	return []Decision{Once, ForSession, Always, Reject}
}

// Answer is an answer to a question.
type Answer struct {
	Decision Decision `json:"decision"`
	// Answers has the answer to each Item by its Question.
	Answers map[string]Words `json:"answers,omitempty"`
	// Message is sent to the agent with a rejection.
	Message string `json:"message,omitempty"`
	// By is the client's name of the person who answered; empty if not given.
	By string `json:"by,omitempty"`
}

// Question is a question to people.
type Question struct {
	ID        string
	SessionID string
	RunID     string
	Asked     Asked
	Status    Status
	Answer    *Answer // of an answered one
	Reason    string  // the reason why it was not answered
	CreatedAt time.Time
	ExpiresAt time.Time
	// ResolvedAt is zero while it is open.
	ResolvedAt time.Time
	// Notify is set only by the store's QuestionAnswer: the workflow must be signaled because the
	// session sleeps.
	Notify bool
	// Delivered: the agent received the answer, or the information that there is none.
	Delivered bool
}

// Check returns the errors in an answer to the question, field by field.
func (a Asked) Check(answer Answer) []failure.Field {
	var wrong []failure.Field
	if a.Kind == Permission {
		if len(answer.Answers) > 0 {
			wrong = append(wrong, failure.Field{Field: "answers", Message: "must be omitted in the answer to a permission request"})
		}
		return wrong
	}
	switch answer.Decision {
	case Reject:
		return nil
	case Once:
	default:
		wrong = append(wrong, failure.Field{Field: "answer", Message: "must be once or reject unless the agent asks for permission"})
	}
	for _, item := range a.Inquiries {
		if answer.Answers[item.Question].Empty() {
			wrong = append(wrong, failure.Field{Field: "answers", Message: fmt.Sprintf("has no answer to %q", item.Question)})
		}
	}
	known := func(question string) bool {
		return slices.ContainsFunc(a.Inquiries, func(i Item) bool { return i.Question == question })
	}
	for question := range answer.Answers {
		if !known(question) {
			wrong = append(wrong, failure.Field{Field: "answers", Message: fmt.Sprintf("answers %q, which is not asked", question)})
		}
	}
	return wrong
}
