package client

import (
	"context"
	"net/http"
)

// Hold holds the queue of a session: no prompt starts until Release.
func (c *Client) Hold(ctx context.Context, sessionID, reason string) (s Session, err error) {
	body := map[string]string{}
	if reason != "" {
		body["reason"] = reason
	}
	_, err = c.call(ctx, http.MethodPost, sessionPath(sessionID)+"/hold", body, &s)
	return s, err
}

// Release ends a hold, so that waiting prompts start.
func (c *Client) Release(ctx context.Context, sessionID string) (s Session, err error) {
	_, err = c.call(ctx, http.MethodPost, sessionPath(sessionID)+"/release", struct{}{}, &s)
	return s, err
}

// Cleared lists the prompts that a clear has cancelled.
type Cleared struct {
	PromptIDs []string `json:"promptIds"`
}

// QueueClear cancels every queued prompt of a session.
func (c *Client) QueueClear(ctx context.Context, sessionID string) (cleared Cleared, err error) {
	_, err = c.call(ctx, http.MethodPost, sessionPath(sessionID)+"/queue/clear", struct{}{}, &cleared)
	return cleared, err
}
