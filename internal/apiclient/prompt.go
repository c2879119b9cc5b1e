package apiclient

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/overwinter-dev/overwinter/internal/resource"
)

// SessionPatch changes the fields of body, as PATCH takes them.
func (c *Client) SessionPatch(ctx context.Context, id string, body map[string]any) (s resource.SessionJSON, err error) {
	_, err = c.call(ctx, http.MethodPatch, sessionPath(id), body, &s)
	return s, err
}

// PromptList lists the prompts of a session, oldest first.
func (c *Client) PromptList(ctx context.Context, sessionID string) (Page[resource.PromptJSON], error) {
	return list[resource.PromptJSON](ctx, c, sessionPath(sessionID)+"/prompts", nil, 0)
}

// PromptWithdraw cancels a queued prompt.
func (c *Client) PromptWithdraw(ctx context.Context, sessionID, promptID string) (p resource.PromptJSON, err error) {
	_, err = c.call(ctx, http.MethodDelete, sessionPath(sessionID)+"/prompts/"+url.PathEscape(promptID), nil, &p)
	return p, err
}

// Transcript reads the agent's own files, as the API sends them.
func (c *Client) Transcript(ctx context.Context, sessionID string) (raw json.RawMessage, err error) {
	_, err = c.call(ctx, http.MethodGet, sessionPath(sessionID)+"/transcript", nil, &raw)
	return raw, err
}

// TranscriptFile reads one of the agent's own files.
func (c *Client) TranscriptFile(ctx context.Context, sessionID, path string) (data []byte, err error) {
	_, err = c.call(ctx, http.MethodGet, sessionPath(sessionID)+"/transcript?path="+url.QueryEscape(path), nil, &data)
	return data, err
}

// SessionURL is the address of a session in the API.
func (c *Client) SessionURL(id string) string { return c.base.String() + sessionPath(id) }
