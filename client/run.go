package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"
)

// Run is a prompt to an agent, and its result.
type Run struct {
	RunID     string `json:"runId"` // unchanged when the prompt is queued again
	SessionID string `json:"sessionId"`
	PromptID  string `json:"promptId"`
	Agent     string `json:"agent"`
	// BaseSessionID and BaseBundleID are the base of the run. BaseBundleID is empty if the session
	// had worked since its newest bundle.
	BaseSessionID string       `json:"baseSessionId,omitempty"`
	BaseBundleID  string       `json:"baseBundleId,omitempty"`
	Forked        bool         `json:"forked"` // the session was created for the run
	JoinedTo      string       `json:"joinedTo,omitempty"`
	Status        PromptStatus `json:"status"`
	Outcome       PromptStatus `json:"outcome,omitempty"` // set when the run has ended
	Reason        string       `json:"reason,omitempty"`
	Attempts      int          `json:"attempts"`
	Usage         *Usage       `json:"usage,omitempty"`
	Model         string       `json:"model,omitempty"`
	BundleID      string       `json:"bundleId,omitempty"` // saved after the run has completed
	CreatedAt     Time         `json:"createdAt"`
	StartedAt     *Time        `json:"startedAt,omitempty"`
	EndedAt       *Time        `json:"endedAt,omitempty"`
}

// RunRequest asks for a run at a base, which is a session or a bundle.
type RunRequest struct {
	BaseSessionID string    `json:"baseSessionId,omitempty"`
	BaseBundleID  string    `json:"baseBundleId,omitempty"`
	Input         string    `json:"input"`
	Agent         string    `json:"agent,omitempty"`   // for a forked session
	Profile       string    `json:"profile,omitempty"` // for a forked session
	Fork          bool      `json:"fork,omitempty"`    // run in a new session
	OnUnknown     OnUnknown `json:"onUnknown,omitempty"`
}

// RunFilter selects runs. The zero value selects all.
type RunFilter struct {
	SessionID string
	Status    PromptStatus
	Agent     string
	Limit     int // 0 for all
}

// maxRunWait is how long one request waits for a run. A call has 30 seconds, and a proxy may not
// allow more.
const maxRunWait = 20 * time.Second

// RunStart starts a run. A repeated call with the same key within 24 hours returns the first run.
// If key is empty, a new key is generated.
func (c *Client) RunStart(ctx context.Context, r RunRequest, key string) (run Run, err error) {
	if key == "" {
		key = uuid.NewString()
	}
	_, err = c.call(ctx, http.MethodPost, "/api/runs", r, &run, "Idempotency-Key", key)
	return run, err
}

// RunGet returns the current state of a run.
func (c *Client) RunGet(ctx context.Context, runID string) (run Run, err error) {
	_, err = c.call(ctx, http.MethodGet, runPath(runID), nil, &run)
	return run, err
}

// RunWait returns a run when it has ended. It ends with ctx.
func (c *Client) RunWait(ctx context.Context, runID string) (run Run, err error) {
	for {
		_, err = c.call(ctx, http.MethodGet, runPath(runID)+"?wait="+maxRunWait.String(), nil, &run)
		if err != nil || run.Outcome != "" {
			return run, err
		}
	}
}

// RunList returns runs, newest first.
func (c *Client) RunList(ctx context.Context, f RunFilter) (Page[Run], error) {
	query := url.Values{}
	for name, value := range map[string]string{"sessionId": f.SessionID, "status": string(f.Status), "agent": f.Agent} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return list[Run](ctx, c, "/api/runs", query, f.Limit)
}

// RunCancel withdraws a waiting run, or interrupts the turn of a run in progress. A run that has
// ended does not change.
func (c *Client) RunCancel(ctx context.Context, runID string) (run Run, err error) {
	_, err = c.call(ctx, http.MethodPost, runPath(runID)+"/cancel", struct{}{}, &run)
	return run, err
}

func runPath(runID string) string { return "/api/runs/" + url.PathEscape(runID) }
