package conversation

// The events of what an agent reports with the tools of overwinter.
const (
	EventScreenshot      EventType = "screenshot"
	EventGitState        EventType = "git_state"
	EventReviewRequested EventType = "review_requested"
	EventPullRequest     EventType = "pull_request"
)

// Screenshot is an image that the agent shows.
type Screenshot struct {
	Image       Image  `json:"image"` // stored like those in results of tools
	Description string `json:"description,omitempty"`
}

// GitState is where the agent says that its work is in git.
type GitState struct {
	Branch      string `json:"branch"`
	BaseBranch  string `json:"baseBranch,omitempty"`
	Commit      string `json:"commit,omitempty"`
	CommitCount int64  `json:"commitCount,omitempty"` // since the base
}

// Review is what the agent wants people to look at.
type Review struct {
	Title       string   `json:"title"`
	Description string   `json:"description,omitempty"`
	Files       []string `json:"files,omitempty"` // relative to the workspace; the first to look at come first
}

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

// PullRequestOperation says what a pull_request event is of.
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
