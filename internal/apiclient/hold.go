package apiclient

import (
	"context"
	"net/http"

	"github.com/overwinter-dev/overwinter/internal/resource"
)

// Hold holds the queue of a session: no prompt starts until Release.
func (c *Client) Hold(ctx context.Context, sessionID, reason string) (s resource.SessionJSON, err error) {
	body := map[string]string{}
	if reason != "" {
		body["reason"] = reason
	}
	_, err = c.call(ctx, http.MethodPost, sessionPath(sessionID)+"/hold", body, &s)
	return s, err
}

// Release ends a hold: what waits starts.
func (c *Client) Release(ctx context.Context, sessionID string) (s resource.SessionJSON, err error) {
	_, err = c.call(ctx, http.MethodPost, sessionPath(sessionID)+"/release", struct{}{}, &s)
	return s, err
}
