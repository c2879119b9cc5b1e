package agent

import "github.com/overwinter-dev/overwinter/internal/question"

// Clients see questions and answers, so these types are defined with those of sessions. The aliases
// here are the names that adapters use.

// Question is a question for which an agent waits.
type Question = question.Asked

// QuestionKind is the kind of answer that an agent waits for.
type QuestionKind = question.Kind

// InquiryItem is one question of an Inquiry.
type InquiryItem = question.Item

// InquiryOption is an answer that the agent offers.
type InquiryOption = question.Option

// Decision is the decision in an answer.
type Decision = question.Decision

// Answer is an answer to a question.
type Answer = question.Answer

// The kinds of question and the decisions.
const (
	Permission      = question.Permission
	Inquiry         = question.Inquiry
	DecisionOnce    = question.Once
	DecisionSession = question.ForSession
	DecisionAlways  = question.Always
	DecisionReject  = question.Reject
)

// Answerer is an adapter whose agent asks questions. The turn waits for the answer. Answer is pure,
// like the rest of an adapter.
type Answerer interface {
	// Answer returns the input for the agent's stdin that answers q. It returns an error if the
	// answer does not fit the question. The input may be written twice, for example if a worker is
	// lost and the next one writes it again; the agent acts only on the first.
	Answer(q Question, a Answer) ([]byte, error)
}
