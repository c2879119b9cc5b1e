package agent

import "github.com/overwinter-dev/overwinter/internal/question"

// Clients see what agents ask and how it is answered, so these types are defined with those of
// sessions; here they have the names that adapters use.

// Question is what an agent waits for an answer to.
type Question = question.Asked

// QuestionKind is the kind of answer that an agent waits for.
type QuestionKind = question.Kind

// InquiryItem is one thing that an Inquiry asks.
type InquiryItem = question.Item

// InquiryOption is an answer that the agent offers.
type InquiryOption = question.Option

// Decision is the answer to a question in one word.
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

// Answerer is an adapter whose agent asks questions; the turn waits until it has an answer. Answer
// is pure, like the rest of an adapter.
type Answerer interface {
	// Answer returns the input that answers q, for the agent's stdin. It fails for an answer that
	// does not fit the question. It may be written twice, for example by two workers of which one
	// was lost; the agent acts on the first.
	Answer(q Question, a Answer) ([]byte, error)
}
