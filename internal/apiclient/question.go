package apiclient

import (
	"context"
	"net/http"
	"net/url"

	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
)

// QuestionList returns the questions of a session, newest first, those of one status or with none
// all of them, over as many pages as it takes.
func (c *Client) QuestionList(ctx context.Context, sessionID string, status question.Status) (Page[resource.QuestionJSON], error) {
	return list[resource.QuestionJSON](ctx, c, sessionPath(sessionID)+"/questions", url.Values{"status": {string(status)}}, 0)
}

// Reply answers a question.
type Reply struct {
	Answer  question.Decision        `json:"answer,omitempty"` // may be left out where Answers are given
	Answers map[string]question.Said `json:"answers,omitempty"`
	Message string                   `json:"message,omitempty"` // sent to the agent with a rejection
}

// QuestionAnswer answers an open question. The first answer counts: question_answered says that there
// was one, which may have been ours where the first call's answer was lost.
func (c *Client) QuestionAnswer(ctx context.Context, sessionID, questionID string, reply Reply) (resource.QuestionJSON, error) {
	var q resource.QuestionJSON
	_, err := c.call(ctx, http.MethodPost, sessionPath(sessionID)+"/questions/"+url.PathEscape(questionID)+"/answer", reply, &q)
	return q, err
}
