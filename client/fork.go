package client

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/uuid"
)

// ForkPoint is the point at which a fork began. The referenced objects may have been deleted.
type ForkPoint struct {
	SessionID string `json:"sessionId"`
	BundleID  string `json:"bundleId,omitempty"`
	PromptID  string `json:"promptId,omitempty"` // the newest prompt of the agent at that point
	Agent     string `json:"agent,omitempty"`    // set if it was a different agent
}

// Fork describes the point at which a fork begins: a bundle, or the state after or before a prompt.
type Fork struct {
	BundleID string       `json:"bundleId,omitempty"`
	PromptID string       `json:"promptId,omitempty"`
	Before   bool         `json:"before,omitempty"`
	Title    string       `json:"title,omitempty"`
	Profile  string       `json:"profile,omitempty"`
	Agent    string       `json:"agent,omitempty"` // default: the agent of the session
	Prompt   *FirstPrompt `json:"prompt,omitempty"`
}

// SessionFork forks a session. A repeated call with the same key within 24 hours returns the first
// fork. If key is empty, a new key is generated.
func (c *Client) SessionFork(ctx context.Context, sessionID string, f Fork, key string) (s Session, err error) {
	if key == "" {
		key = uuid.NewString()
	}
	var body any = f
	if f.Prompt != nil && len(f.Prompt.Files) > 0 {
		if body, err = formWith("fork", f, f.Prompt.Files); err != nil {
			return s, fmt.Errorf("encode the fork: %w", err)
		}
	}
	_, err = c.call(ctx, http.MethodPost, sessionPath(sessionID)+"/fork", body, &s, "Idempotency-Key", key)
	return s, err
}

// ForkList returns the forks of a session, newest first.
func (c *Client) ForkList(ctx context.Context, sessionID string) (Page[Session], error) {
	return list[Session](ctx, c, sessionPath(sessionID)+"/forks", nil, 0)
}
