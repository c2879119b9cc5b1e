package resource

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// QuestionJSON is the JSON of an agent's question.
type QuestionJSON struct {
	ID        string                    `json:"id"`
	SessionID string                    `json:"sessionId"`
	RunID     string                    `json:"runId"`
	Kind      question.Kind             `json:"kind"`
	Title     string                    `json:"title"`
	ToolName  string                    `json:"toolName,omitempty"`
	ToolUseID string                    `json:"toolUseId,omitempty"`
	Input     json.RawMessage           `json:"input,omitempty"`
	Questions []QuestionItem            `json:"questions,omitempty"`
	Status    question.Status           `json:"status"`
	Answer    question.Decision         `json:"answer,omitempty"`
	Answers   map[string]question.Words `json:"answers,omitempty"`
	Message   string                    `json:"message,omitempty"`
	// AnsweredBy is the client's name of the person who answered.
	AnsweredBy string `json:"answeredBy,omitempty"`
	Reason     string `json:"reason,omitempty"`
	CreatedAt  Time   `json:"createdAt"`
	ExpiresAt  Time   `json:"expiresAt"`
	// ResolvedAt is the time at which it was answered, expired or was cancelled.
	ResolvedAt *Time `json:"resolvedAt,omitempty"`
}

// QuestionItem is one question in words, which is the key of its answer.
type QuestionItem struct {
	Question string           `json:"question"`
	Header   string           `json:"header,omitempty"`
	Multiple bool             `json:"multiple"`
	Options  []QuestionOption `json:"options"`
}

// QuestionOption is an answer that the agent offers; other answers are possible.
type QuestionOption struct {
	Label       string `json:"label"`
	Description string `json:"description,omitempty"`
}

// Question converts q.
func Question(q question.Question) QuestionJSON {
	out := QuestionJSON{
		ID: q.ID, SessionID: q.SessionID, RunID: session.RunOf(q.RunID), Kind: q.Asked.Kind, Title: q.Asked.Title,
		ToolName: q.Asked.ToolName, ToolUseID: q.Asked.ToolUseID, Input: q.Asked.Input, Status: q.Status, Reason: q.Reason,
		CreatedAt: Time(q.CreatedAt), ExpiresAt: Time(q.ExpiresAt), ResolvedAt: OptionalTime(q.ResolvedAt),
	}
	for _, item := range q.Asked.Inquiries {
		options := make([]QuestionOption, len(item.Options)) // [] in JSON
		for i, o := range item.Options {
			options[i] = QuestionOption(o)
		}
		out.Questions = append(out.Questions, QuestionItem{
			Question: item.Question, Header: item.Header, Multiple: item.Multiple, Options: options,
		})
	}
	if q.Answer != nil {
		out.Answer, out.Answers, out.Message, out.AnsweredBy = q.Answer.Decision, q.Answer.Answers, q.Answer.Message, q.Answer.By
	}
	return out
}

// Questions converts a list; the result is never nil, so that it is [] in JSON.
func Questions(questions []question.Question) []QuestionJSON {
	out := make([]QuestionJSON, len(questions))
	for i, q := range questions {
		out[i] = Question(q)
	}
	return out
}
