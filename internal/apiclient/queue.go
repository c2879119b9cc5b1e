package apiclient

import (
	"context"
	"net/http"
	"net/url"

	"github.com/overwinter-dev/overwinter/internal/resource"
)

// PromptReplace replaces the content of a queued prompt.
func (c *Client) PromptReplace(ctx context.Context, sessionID, promptID, content string) (p resource.PromptJSON, err error) {
	_, err = c.call(ctx, http.MethodPut, promptPath(sessionID, promptID), map[string]string{"content": content}, &p)
	return p, err
}

// PromptPromote puts a queued prompt before all others that wait.
func (c *Client) PromptPromote(ctx context.Context, sessionID, promptID string) (p resource.PromptJSON, err error) {
	_, err = c.call(ctx, http.MethodPost, promptPath(sessionID, promptID)+"/promote", struct{}{}, &p)
	return p, err
}

// Cleared are the prompts that a clear has cancelled.
type Cleared struct {
	PromptIDs []string `json:"promptIds"`
}

// QueueClear cancels every queued prompt of a session.
func (c *Client) QueueClear(ctx context.Context, sessionID string) (cleared Cleared, err error) {
	_, err = c.call(ctx, http.MethodPost, sessionPath(sessionID)+"/queue/clear", struct{}{}, &cleared)
	return cleared, err
}

func promptPath(sessionID, promptID string) string {
	return sessionPath(sessionID) + "/prompts/" + url.PathEscape(promptID)
}
