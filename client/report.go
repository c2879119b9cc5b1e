package client

import (
	"context"
	"net/http"
)

// Git describes the repository in a session's workspace, and the pull request of its changes.
type Git struct {
	Workspace   *WorkspaceGit `json:"workspace"` // nil before the first diff was taken, and without a repository
	Reported    *ReportedGit  `json:"reported"`  // nil if the agent has reported nothing
	PullRequest *PullRequest  `json:"pullRequest"`
}

// WorkspaceGit is the state of the repository in the sandbox at the end of the last turn.
type WorkspaceGit struct {
	Branch     string `json:"branch,omitempty"` // empty if the head is detached
	Head       string `json:"head,omitempty"`   // empty before the first commit
	Dirty      bool   `json:"dirty"`            // the workspace has uncommitted changes
	Base       string `json:"base,omitempty"`   // the base commit of diffs
	ComputedAt Time   `json:"computedAt"`
}

// ReportedGit is the branch reported by the agent.
type ReportedGit struct {
	Branch      string `json:"branch"`
	BaseBranch  string `json:"baseBranch,omitempty"`
	Commit      string `json:"commit,omitempty"`
	CommitCount int64  `json:"commitCount,omitempty"` // since the base
	RunID       string `json:"runId"`
	At          Time   `json:"at"`
}

// PullRequest is a pull request with all changes that the agent has recorded.
type PullRequest struct {
	Title      string `json:"title,omitempty"`
	Body       string `json:"body,omitempty"`
	Branch     string `json:"branch,omitempty"`
	BaseBranch string `json:"baseBranch,omitempty"`
	Number     int64  `json:"number,omitempty"`
	URL        string `json:"url,omitempty"`
	State      string `json:"state,omitempty"` // draft, open, merged or closed
	RunID      string `json:"runId"`           // run of the newest change
	CreatedAt  Time   `json:"createdAt"`
	UpdatedAt  Time   `json:"updatedAt"`
}

// Screenshot is an image that the agent has shown. AttachmentGet reads it.
type Screenshot struct {
	Seq         int64  `json:"seq"` // position of the event
	Image       Image  `json:"image"`
	Description string `json:"description,omitempty"`
	RunID       string `json:"runId"`
	At          Time   `json:"at"`
}

// Git returns the state of the repository in a session's workspace, and the pull request of its
// changes.
func (c *Client) Git(ctx context.Context, sessionID string) (g Git, err error) {
	_, err = c.call(ctx, http.MethodGet, sessionPath(sessionID)+"/git", nil, &g)
	return g, err
}

// ScreenshotList returns the images that the agent of a session has shown, newest first. It reads
// all pages.
func (c *Client) ScreenshotList(ctx context.Context, sessionID string) (Page[Screenshot], error) {
	return list[Screenshot](ctx, c, sessionPath(sessionID)+"/screenshots", nil, 0)
}
