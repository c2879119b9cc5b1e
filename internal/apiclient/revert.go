package apiclient

import (
	"context"
	"net/http"

	"github.com/overwinter-dev/overwinter/internal/resource"
)

// Revert takes a session's agent back to before a prompt, after the running turn or at once with force.
func (c *Client) Revert(ctx context.Context, sessionID, promptID string, force bool) (resource.SessionJSON, error) {
	var s resource.SessionJSON
	body := map[string]any{"promptId": promptID}
	if force {
		body["force"] = true
	}
	_, err := c.call(ctx, http.MethodPost, sessionPath(sessionID)+"/revert", body, &s)
	return s, err
}
