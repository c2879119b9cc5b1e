package apiclient

import (
	"context"
	"net/http"
	"net/url"

	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// PromptRetry queues a prompt whose outcome is unknown again. runID is the run whose outcome is unknown: with it a request
// that is sent again, because its answer was lost, does not run the prompt twice.
func (c *Client) PromptRetry(ctx context.Context, sessionID, promptID, runID string) (resource.PromptJSON, error) {
	body := map[string]string{}
	if runID != "" {
		body["runId"] = runID
	}
	return c.promptResolve(ctx, sessionID, promptID, session.ResolutionRetry, body)
}

// PromptResolve says how a prompt whose outcome is unknown ended: completed or failed.
func (c *Client) PromptResolve(ctx context.Context, sessionID, promptID string, outcome session.PromptStatus, note string) (resource.PromptJSON, error) {
	return c.promptResolve(ctx, sessionID, promptID, session.ResolutionResolve, map[string]string{"outcome": string(outcome), "note": note})
}

// PromptDismiss ends a prompt whose outcome is unknown as cancelled.
func (c *Client) PromptDismiss(ctx context.Context, sessionID, promptID, note string) (resource.PromptJSON, error) {
	return c.promptResolve(ctx, sessionID, promptID, session.ResolutionDismiss, map[string]string{"note": note})
}

func (c *Client) promptResolve(
	ctx context.Context, sessionID, promptID string, action session.Resolution, body map[string]string,
) (resource.PromptJSON, error) {
	var p resource.PromptJSON
	_, err := c.call(ctx, http.MethodPost, sessionPath(sessionID)+"/prompts/"+url.PathEscape(promptID)+"/"+string(action), body, &p)
	return p, err
}
