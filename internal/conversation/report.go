package conversation

import (
	"cmp"
	"time"
)

// The events of what an agent reports with the tools of overwinter.
const (
	EventScreenshot      EventType = "screenshot"
	EventGitState        EventType = "git_state"
	EventReviewRequested EventType = "review_requested"
	EventReviewResult    EventType = "review_result"
	EventPullRequest     EventType = "pull_request"
)

// Screenshot is an image that the agent shows.
type Screenshot struct {
	Image       Image  `json:"image"` // stored like those in results of tools
	Description string `json:"description,omitempty"`
}

// Shown is a screenshot with its place in the log.
type Shown struct {
	Screenshot
	Seq   int64
	RunID string
	At    time.Time
}

// GitState is where the work of a session is in git: as its agent says, or as its workspace was seen.
type GitState struct {
	Branch      string    `json:"branch"` // empty if the head of the workspace is detached
	BaseBranch  string    `json:"baseBranch,omitempty"`
	Commit      string    `json:"commit,omitempty"`
	CommitCount int64     `json:"commitCount,omitempty"` // since the base
	Dirty       bool      `json:"dirty,omitempty"`       // something is not committed
	Source      GitSource `json:"source,omitempty"`      // empty in events of earlier releases: the agent
}

// GitSource says who knows the state of git.
type GitSource string

// The sources of a state of git.
const (
	GitOfAgent     GitSource = "agent"
	GitOfWorkspace GitSource = "workspace"
)

// ObservedGit is the state of the repository in a workspace when it was looked at.
type ObservedGit struct {
	Branch string // empty if the head is detached
	Head   string // empty before the first commit
	Dirty  bool   // something is not committed
	Base   string // the commit that diffs are taken against; empty without one
	At     time.Time
}

// Reported is something that an agent has reported, as it was last.
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
	Files       []string `json:"files,omitempty"` // relative to the workspace; the first to look at come first
}

// ReviewResult is the agent's report about changes that it was asked to review.
type ReviewResult struct {
	Summary  string    `json:"summary"`
	Verdict  Verdict   `json:"verdict,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
}

// Finding is one thing that a review has found.
type Finding struct {
	File     string   `json:"file,omitempty"` // relative to the workspace
	Line     int64    `json:"line,omitempty"`
	Severity Severity `json:"severity,omitempty"`
	Comment  string   `json:"comment"`
}

// Verdict is the outcome of a review.
type Verdict string

// Severity is how much a finding matters.
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

// PullRequest is a pull request that the agent has prepared, or changed. Empty fields of a change stay as they were.
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

// With is the pull request after a change.
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
