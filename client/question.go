package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// QuestionStatus is the state of a question.
type QuestionStatus string

// The statuses of a question.
const (
	QuestionOpen      QuestionStatus = "open"
	QuestionAnswered  QuestionStatus = "answered"
	QuestionExpired   QuestionStatus = "expired"   // not answered in time; the agent got a rejection
	QuestionCancelled QuestionStatus = "cancelled" // the agent no longer waits for the answer
)

// QuestionKind is the kind of answer that a question requires.
type QuestionKind string

// The kinds of question.
const (
	PermissionRequest QuestionKind = "permission" // a Decision about a tool call
	Inquiry           QuestionKind = "question"   // text answers
)

// Decision is the answer to a request for permission; Reject may be the answer to any question.
type Decision string

// The decisions.
const (
	Once       Decision = "once"    // allowed this time
	ForSession Decision = "session" // allowed, including similar calls until the session's agent ends
	Always     Decision = "always"  // allowed, including all similar calls in the future
	Reject     Decision = "reject"
)

// Decisions lists every decision.
func Decisions() []Decision { return []Decision{Once, ForSession, Always, Reject} }

// Question is a question of an agent.
type Question struct {
	ID        string           `json:"id"`
	SessionID string           `json:"sessionId"`
	RunID     string           `json:"runId"`
	Kind      QuestionKind     `json:"kind"`
	Title     string           `json:"title"`
	ToolName  string           `json:"toolName,omitempty"`
	ToolUseID string           `json:"toolUseId,omitempty"`
	Input     json.RawMessage  `json:"input,omitempty"`
	Questions []QuestionItem   `json:"questions,omitempty"`
	Status    QuestionStatus   `json:"status"`
	Answer    Decision         `json:"answer,omitempty"`
	Answers   map[string]Words `json:"answers,omitempty"`
	Message   string           `json:"message,omitempty"`
	// AnsweredBy is the answering user, as stated by the client.
	AnsweredBy string `json:"answeredBy,omitempty"`
	Reason     string `json:"reason,omitempty"`
	CreatedAt  Time   `json:"createdAt"`
	ExpiresAt  Time   `json:"expiresAt"`
	// ResolvedAt is the time at which the question was answered, expired or was cancelled.
	ResolvedAt *Time `json:"resolvedAt,omitempty"`
}

// QuestionItem is one item of a question with text answers. Its Question field is the key of its
// answer.
type QuestionItem struct {
	Question string           `json:"question"`
	Header   string           `json:"header,omitempty"`
	Multiple bool             `json:"multiple"`
	Options  []QuestionOption `json:"options"`
}

// QuestionOption is an answer that the agent offers. Other answers may be given.
type QuestionOption struct {
	Label       string `json:"label"`
	Description string `json:"description,omitempty"`
}

// Words is the answer to a QuestionItem: a text, or the chosen options. In JSON it is a string or a
// list of strings.
type Words struct {
	texts []string
	list  bool
}

// TextAnswer returns an answer with one text.
func TextAnswer(text string) Words { return Words{texts: []string{text}} }

// OptionsAnswer returns an answer with a list of options.
func OptionsAnswer(options ...string) Words { return Words{texts: options, list: true} }

// TextAnswers returns answers with one text for each of several items.
func TextAnswers(texts map[string]string) map[string]Words {
	words := make(map[string]Words, len(texts))
	for item, text := range texts {
		words[item] = TextAnswer(text)
	}
	return words
}

// Texts returns the chosen options, or the single text.
func (w Words) Texts() []string { return w.texts }

// IsList reports whether the answer is a list, of any length.
func (w Words) IsList() bool { return w.list }

func (w Words) String() string { return strings.Join(w.texts, ", ") }

// MarshalJSON encodes a list as a list, even with one element.
func (w Words) MarshalJSON() ([]byte, error) {
	if w.list {
		return json.Marshal(append([]string{}, w.texts...))
	}
	return json.Marshal(w.String())
}

// UnmarshalJSON takes a string or a list of strings.
func (w *Words) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		var options []string
		if err := json.Unmarshal(data, &options); err != nil {
			return err
		}
		*w = OptionsAnswer(options...)
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	*w = TextAnswer(text)
	return nil
}

// QuestionList returns the questions of a session, newest first. If status is empty, it returns all
// questions, otherwise those with that status. It reads all pages.
func (c *Client) QuestionList(ctx context.Context, sessionID string, status QuestionStatus) (Page[Question], error) {
	return list[Question](ctx, c, sessionPath(sessionID)+"/questions", url.Values{"status": {string(status)}}, 0)
}

// Reply answers a question.
type Reply struct {
	Answer  Decision         `json:"answer,omitempty"` // optional if Answers are given
	Answers map[string]Words `json:"answers,omitempty"`
	Message string           `json:"message,omitempty"` // sent to the agent with a rejection
	// AnsweredBy is the name of the answering user that others see: at most 128 visible ASCII
	// characters. The server does not verify it.
	AnsweredBy string `json:"answeredBy,omitempty"`
}

// QuestionAnswer answers an open question. Only the first answer counts. The error CodeAnswered
// means that the question was already answered, possibly by this call if its first attempt was
// interrupted.
func (c *Client) QuestionAnswer(ctx context.Context, sessionID, questionID string, reply Reply) (q Question, err error) {
	_, err = c.call(ctx, http.MethodPost, sessionPath(sessionID)+"/questions/"+url.PathEscape(questionID)+"/answer", reply, &q)
	return q, err
}
