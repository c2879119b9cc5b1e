package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// QuestionStatus says whether a question waits for its answer.
type QuestionStatus string

// The statuses of a question.
const (
	QuestionOpen      QuestionStatus = "open"
	QuestionAnswered  QuestionStatus = "answered"
	QuestionExpired   QuestionStatus = "expired"   // no answer in time; the agent got a rejection
	QuestionCancelled QuestionStatus = "cancelled" // the agent does not wait any more
)

// QuestionKind is the kind of answer that a question asks for.
type QuestionKind string

// The kinds of question.
const (
	PermissionRequest QuestionKind = "permission" // a Decision about the call of a tool
	Inquiry           QuestionKind = "question"   // answers in words
)

// Decision is the answer to a request for permission; Reject may be the answer to any question.
type Decision string

// The decisions.
const (
	Once       Decision = "once"    // allowed this time
	ForSession Decision = "session" // and whatever is like it until the session's agent ends
	Always     Decision = "always"  // and whatever is like it from now on
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
	// AnsweredBy is who answered, in the words of the client.
	AnsweredBy string `json:"answeredBy,omitempty"`
	Reason     string `json:"reason,omitempty"`
	CreatedAt  Time   `json:"createdAt"`
	ExpiresAt  Time   `json:"expiresAt"`
	// ResolvedAt is when it was answered, expired or was cancelled.
	ResolvedAt *Time `json:"resolvedAt,omitempty"`
}

// QuestionItem is one thing that is asked in words. Its question is the key of its answer.
type QuestionItem struct {
	Question string           `json:"question"`
	Header   string           `json:"header,omitempty"`
	Multiple bool             `json:"multiple"`
	Options  []QuestionOption `json:"options"`
}

// QuestionOption is an answer that the agent offers; others may be given.
type QuestionOption struct {
	Label       string `json:"label"`
	Description string `json:"description,omitempty"`
}

// Words is the answer to a QuestionItem: a text, or the options that were chosen. In JSON it is a string or a list of strings.
type Words struct {
	texts []string
	list  bool
}

// Say is one text.
func Say(text string) Words { return Words{texts: []string{text}} }

// Pick is a list of options.
func Pick(options ...string) Words { return Words{texts: options, list: true} }

// SayEach is one text for each of several items.
func SayEach(texts map[string]string) map[string]Words {
	words := make(map[string]Words, len(texts))
	for item, text := range texts {
		words[item] = Say(text)
	}
	return words
}

// Texts are the options that were chosen, or the one text.
func (w Words) Texts() []string { return w.texts }

// IsList reports whether it is a list, of any length.
func (w Words) IsList() bool { return w.list }

func (w Words) String() string { return strings.Join(w.texts, ", ") }

// MarshalJSON keeps a list a list.
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
		*w = Pick(options...)
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	*w = Say(text)
	return nil
}

// QuestionList returns the questions of a session, newest first, those of one status or with none
// all of them, over as many pages as it takes.
func (c *Client) QuestionList(ctx context.Context, sessionID string, status QuestionStatus) (Page[Question], error) {
	return list[Question](ctx, c, sessionPath(sessionID)+"/questions", url.Values{"status": {string(status)}}, 0)
}

// Reply answers a question.
type Reply struct {
	Answer  Decision         `json:"answer,omitempty"` // may be left out if Answers are given
	Answers map[string]Words `json:"answers,omitempty"`
	Message string           `json:"message,omitempty"` // sent to the agent with a rejection
	// AnsweredBy is who answers, for others to see; at most 128 visible ASCII characters, which nothing checks.
	AnsweredBy string `json:"answeredBy,omitempty"`
}

// QuestionAnswer answers an open question. The first answer counts: CodeAnswered says that there
// was one, which may have been that of this call if its first attempt was interrupted.
func (c *Client) QuestionAnswer(ctx context.Context, sessionID, questionID string, reply Reply) (q Question, err error) {
	_, err = c.call(ctx, http.MethodPost, sessionPath(sessionID)+"/questions/"+url.PathEscape(questionID)+"/answer", reply, &q)
	return q, err
}
