package conversation

import (
	"cmp"
	"time"
)

// The events of reports by an agent with the tools of overwinter.
const (
	EventScreenshot      EventType = "screenshot"
	EventGitState        EventType = "git_state"
	EventReviewRequested EventType = "review_requested"
	EventReviewResult    EventType = "review_result"
	EventPullRequest     EventType = "pull_request"
)

// Screenshot is an image that the agent shows.
type Screenshot struct {
	Image       Image  `json:"image"` // stored like images in results of tools
	Description string `json:"description,omitempty"`
}

// Shown is a screenshot with its place in the log.
type Shown struct {
	Screenshot
	Seq   int64
	RunID string
	At    time.Time
}

// GitState is the git state of a session's work, as reported by its agent or observed in its
// workspace.
type GitState struct {
	Branch      string    `json:"branch"` // empty if the head of the workspace is detached
	BaseBranch  string    `json:"baseBranch,omitempty"`
	Commit      string    `json:"commit,omitempty"`
	CommitCount int64     `json:"commitCount,omitempty"` // since the base
	Dirty       bool      `json:"dirty,omitempty"`       // there are uncommitted changes
	Source      GitSource `json:"source,omitempty"`      // empty in events of earlier releases: the agent
}

// GitSource is the source of a git state.
type GitSource string

// The sources of a state of git.
const (
	GitOfAgent     GitSource = "agent"
	GitOfWorkspace GitSource = "workspace"
)

// ObservedGit is the observed state of the repository in a workspace.
type ObservedGit struct {
	Branch string // empty if the head is detached
	Head   string // empty before the first commit
	Dirty  bool   // there are uncommitted changes
	Base   string // the commit to which diffs are relative; empty if there is none
	At     time.Time
}

// Reported is the latest report of an agent of some type.
type Reported[T any] struct {
	Value   T
	RunID   string
	FirstAt time.Time // of a pull request, when it was created
	At      time.Time
}

// Reports are the reports of an agent; nil is nothing.
type Reports struct {
	Git         *Reported[GitState]
	PullRequest *Reported[PullRequest]
}

// Review is a request of the agent for a review by people.
type Review struct {
	Title       string   `json:"title"`
	Description string   `json:"description,omitempty"`
	Files       []string `json:"files,omitempty"` // relative to the workspace; the most important first
}

// ReviewResult is the agent's report about changes that it was asked to review.
type ReviewResult struct {
	Summary  string    `json:"summary"`
	Verdict  Verdict   `json:"verdict,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
}

// Finding is a finding of a review.
type Finding struct {
	File     string   `json:"file,omitempty"` // relative to the workspace
	Line     int64    `json:"line,omitempty"`
	Severity Severity `json:"severity,omitempty"`
	Comment  string   `json:"comment"`
}

// Verdict is the outcome of a review.
type Verdict string

// Severity is the severity of a finding.
type Severity string

// The verdicts and severities of reviews.
const (
	VerdictApprove        Verdict = "approve"
	VerdictComment        Verdict = "comment"
	VerdictRequestChanges Verdict = "request_changes"

	SeverityInfo    Severity = "info"
	SeverityWarning Severity = "warning"
	SeverityError   Severity = "error"
)

// PullRequest is a pull request that the agent has prepared, or changed. Empty fields of a change
// mean unchanged.
type PullRequest struct {
	Operation  PullRequestOperation `json:"operation"`
	Title      string               `json:"title,omitempty"`
	Body       string               `json:"body,omitempty"`
	Branch     string               `json:"branch,omitempty"`
	BaseBranch string               `json:"baseBranch,omitempty"`
	Number     int64                `json:"number,omitempty"`
	URL        string               `json:"url,omitempty"`
	State      PullRequestState     `json:"state,omitempty"`
}

// With returns the pull request after a change.
func (p PullRequest) With(c PullRequest) PullRequest {
	return PullRequest{
		Operation: p.Operation, Title: cmp.Or(c.Title, p.Title), Body: cmp.Or(c.Body, p.Body), Branch: cmp.Or(c.Branch, p.Branch),
		BaseBranch: cmp.Or(c.BaseBranch, p.BaseBranch), Number: cmp.Or(c.Number, p.Number), URL: cmp.Or(c.URL, p.URL), State: cmp.Or(c.State, p.State),
	}
}

// PullRequestOperation is the operation of a pull_request event.
type PullRequestOperation string

// PullRequestState is the state of a pull request.
type PullRequestState string

// The operations and states of pull requests.
const (
	PullRequestCreate PullRequestOperation = "create"
	PullRequestUpdate PullRequestOperation = "update"

	PullRequestDraft  PullRequestState = "draft"
	PullRequestOpen   PullRequestState = "open"
	PullRequestMerged PullRequestState = "merged"
	PullRequestClosed PullRequestState = "closed"
)
