package resource

import "github.com/overwinter-dev/overwinter/internal/conversation"

// GitJSON is the state of the repository in a workspace, and the pull request for its changes.
type GitJSON struct {
	Workspace   *WorkspaceGitJSON `json:"workspace"` // nil before the first comparison, and without a repository
	Reported    *ReportedGitJSON  `json:"reported"`  // nil if the agent has reported nothing
	PullRequest *PullRequestJSON  `json:"pullRequest"`
}

// WorkspaceGitJSON is the state of the repository in the sandbox.
type WorkspaceGitJSON struct {
	Branch     string `json:"branch,omitempty"` // empty if the head is detached
	Head       string `json:"head,omitempty"`   // empty before the first commit
	Dirty      bool   `json:"dirty"`
	Base       string `json:"base,omitempty"` // the commit that diffs are computed against
	ComputedAt Time   `json:"computedAt"`
}

// ReportedGitJSON is the branch that the agent has reported.
type ReportedGitJSON struct {
	Branch      string `json:"branch"`
	BaseBranch  string `json:"baseBranch,omitempty"`
	Commit      string `json:"commit,omitempty"`
	CommitCount int64  `json:"commitCount,omitempty"`
	RunID       string `json:"runId"`
	At          Time   `json:"at"`
}

// PullRequestJSON is a pull request with all changes that the agent has recorded.
type PullRequestJSON struct {
	Title      string                        `json:"title,omitempty"`
	Body       string                        `json:"body,omitempty"`
	Branch     string                        `json:"branch,omitempty"`
	BaseBranch string                        `json:"baseBranch,omitempty"`
	Number     int64                         `json:"number,omitempty"`
	URL        string                        `json:"url,omitempty"`
	State      conversation.PullRequestState `json:"state,omitempty"`
	RunID      string                        `json:"runId"`
	CreatedAt  Time                          `json:"createdAt"`
	UpdatedAt  Time                          `json:"updatedAt"`
}

// Git converts the state of a repository.
func Git(o *conversation.ObservedGit, r conversation.Reports) GitJSON {
	var out GitJSON
	if o != nil {
		out.Workspace = &WorkspaceGitJSON{Branch: o.Branch, Head: o.Head, Dirty: o.Dirty, Base: o.Base, ComputedAt: Time(o.At)}
	}
	if g := r.Git; g != nil {
		out.Reported = &ReportedGitJSON{
			Branch: g.Value.Branch, BaseBranch: g.Value.BaseBranch, Commit: g.Value.Commit, CommitCount: g.Value.CommitCount, RunID: g.RunID, At: Time(g.At),
		}
	}
	if p := r.PullRequest; p != nil {
		out.PullRequest = &PullRequestJSON{
			Title: p.Value.Title, Body: p.Value.Body, Branch: p.Value.Branch, BaseBranch: p.Value.BaseBranch, Number: p.Value.Number, URL: p.Value.URL,
			State: p.Value.State, RunID: p.RunID, CreatedAt: Time(p.FirstAt), UpdatedAt: Time(p.At),
		}
	}
	return out
}

// ScreenshotJSON is an image that the agent has shown.
type ScreenshotJSON struct {
	Seq         int64              `json:"seq"` // of the event
	Image       conversation.Image `json:"image"`
	Description string             `json:"description,omitempty"`
	RunID       string             `json:"runId"`
	At          Time               `json:"at"`
}

// Screenshots converts screenshots.
func Screenshots(shown []conversation.Shown) []ScreenshotJSON {
	out := make([]ScreenshotJSON, len(shown))
	for i, s := range shown {
		out[i] = ScreenshotJSON{Seq: s.Seq, Image: s.Image, Description: s.Description, RunID: s.RunID, At: Time(s.At)}
	}
	return out
}
