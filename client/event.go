package client

import (
	"encoding/json"
	"fmt"
)

// The types of events of a session. Each comment names the type that Event.Decode reads the data
// into.
const (
	EventStatus           = "status"            // StatusData
	EventPrompt           = "prompt"            // PromptData
	EventQueue            = "queue"             // QueueData
	EventTurnStart        = "turn_start"        // TurnStartData
	EventTurnEnd          = "turn_end"          // TurnEndData
	EventBlockStart       = "block_start"       // BlockData
	EventTextDelta        = "text_delta"        // TextDeltaData
	EventBlockUpdate      = "block_update"      // applied by FollowBlocks
	EventBlockComplete    = "block_complete"    // BlockData
	EventBlockRemoved     = "block_removed"     // BlockRemovedData
	EventMetadataUpdate   = "metadata_update"   // MetadataData
	EventTitle            = "title"             // TitleData
	EventSettings         = "settings"          // see the OpenAPI document
	EventError            = "error"             // ErrorData
	EventQuestion         = "question"          // QuestionData
	EventQuestionResolved = "question_resolved" // QuestionResolvedData
	EventFile             = "file"              // FileData
	EventSetup            = "setup"             // SetupData
	EventNetwork          = "network"           // NetworkData
	EventDeadline         = "deadline"          // DeadlineData
	EventCommand          = "command"           // CommandData
	EventScreenshot       = "screenshot"        // ScreenshotData
	EventGitState         = "git_state"         // GitStateData
	EventReviewRequested  = "review_requested"  // ReviewData
	EventReviewResult     = "review_result"     // ReviewResultData
	EventPullRequest      = "pull_request"      // PullRequestData
)

// The types of markers. Markers describe the stream and have no position.
const (
	MarkerCaughtUp = "caught_up" // all events that were stored at the start have been yielded; CaughtUpData
	MarkerGap      = "gap"       // events were deleted before they were read; GapData
	MarkerEnd      = "end"       // the session has ended
)

// Event is an event of a session, or a marker of its stream, which has only Type and Data.
type Event struct {
	Seq            int64           `json:"seq"`
	Type           string          `json:"type"`
	SessionID      string          `json:"sessionId"`
	ConversationID string          `json:"conversationId,omitempty"`
	RunID          string          `json:"runId,omitempty"`
	At             Time            `json:"at"`
	Data           json.RawMessage `json:"data"`
	// Raw is the event as received, one line of JSON. For a marker it is the data.
	Raw json.RawMessage `json:"-"`
}

// Marker reports whether the event is a marker.
func (e Event) Marker() bool { return e.Seq == 0 }

// Decode reads the data of the event into the value that v points to.
func (e Event) Decode(v any) error {
	if err := json.Unmarshal(e.Data, v); err != nil {
		return fmt.Errorf("read %s event %d: %w", e.Type, e.Seq, err)
	}
	return nil
}

// StatusData reports that a session has entered a state.
type StatusData struct {
	Status     Status   `json:"status"`
	Reason     string   `json:"reason"`
	Transition int64    `json:"transition"` // number of the transition within the session
	Sandbox    *Sandbox `json:"sandbox"`
	Receipt    *Receipt `json:"receipt,omitempty"`
}

// PromptData is a prompt that was submitted or has changed. Only the first event of a prompt, and
// events that replace its content, have the content.
type PromptData struct {
	Prompt Prompt `json:"prompt"`
}

// QueueData has the changes of the queue and the head of the queue.
type QueueData struct {
	Changes []QueueChange `json:"changes,omitempty"`
	// Items are the first unfinished prompts, in order.
	Items      []QueueItem `json:"items"`
	Queued     int64       `json:"queued"`
	Processing int64       `json:"processing"`
	Hold
}

// QueueChange is a prompt that joined the queue, changed in it or left it.
type QueueChange struct {
	Change string `json:"change"` // added, updated or removed
	QueueItem
}

// QueueItem is one prompt in a queue.
type QueueItem struct {
	PromptID string       `json:"promptId"`
	Ordinal  int64        `json:"ordinal"`
	Rank     int64        `json:"rank,omitempty"`
	Status   PromptStatus `json:"status"`
}

// TurnStartData reports that a run of a prompt has started. Attempt is greater than 1 if another
// worker continues the run.
type TurnStartData struct {
	RunID    string `json:"runId"`
	PromptID string `json:"promptId"`
	Attempt  int64  `json:"attempt"`
}

// TurnEndData reports the end of a run and its outcome. Usage is nil in events of earlier releases.
type TurnEndData struct {
	RunID    string `json:"runId"`
	PromptID string `json:"promptId"`
	Outcome  string `json:"outcome"` // completed, failed, cancelled or unknown
	Reason   string `json:"reason,omitempty"`
	Usage    *Usage `json:"usage,omitempty"`
	Model    string `json:"model,omitempty"`
}

// BlockData is a block that has started, or is complete.
type BlockData struct {
	Block Block `json:"block"`
}

// TextDeltaData is text that is appended to a block.
type TextDeltaData struct {
	BlockID string `json:"blockId"`
	Delta   string `json:"delta"`
}

// BlockRemovedData names a block that the agent has removed.
type BlockRemovedData struct {
	BlockID string `json:"blockId"`
}

// MetadataData is the usage of a turn so far.
type MetadataData struct {
	Usage struct {
		InputTokens  int64 `json:"inputTokens"`
		OutputTokens int64 `json:"outputTokens"`
	} `json:"usage"`
	CostUSD *float64 `json:"costUsd"` // nil if it is not known
	Model   string   `json:"model,omitempty"`
}

// TitleData is the new title of a session.
type TitleData struct {
	Title string `json:"title"`
}

// ErrorData is a problem that the agent or its turn has reported.
type ErrorData struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// QuestionData is a question that the agent asks.
type QuestionData struct {
	Question Question `json:"question"`
}

// QuestionResolvedData is the answer to a question, or the reason for a missing answer.
type QuestionResolvedData struct {
	QuestionID string           `json:"questionId"`
	Answer     Decision         `json:"answer,omitempty"`
	Answers    map[string]Words `json:"answers,omitempty"`
	Message    string           `json:"message,omitempty"`
	AnsweredBy string           `json:"answeredBy,omitempty"`
	Reason     string           `json:"reason,omitempty"`
}

// FileData reports that a file of the workspace has changed. Size is 0 for a deleted file.
type FileData struct {
	Path   string `json:"path"`
	Change string `json:"change"` // created, modified or deleted
	Size   int64  `json:"size"`
}

// SetupData reports that a stage of the workspace setup has started or ended.
type SetupData struct {
	Stage  string `json:"stage"`  // image, clone or setup
	Status string `json:"status"` // started, completed or failed
}

// NetworkData counts connections to one destination that the network of the sandbox refused.
type NetworkData struct {
	Host     string `json:"host,omitempty"` // the name that the sandbox resolved
	IP       string `json:"ip"`             // empty if there were too many destinations to report each
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"` // tcp or udp
	Verdict  string `json:"verdict"`  // refused or limited
	Count    int    `json:"count"`
}

// DeadlineData announces the time at which an idle session hibernates, or at which a session leaves
// its sandbox.
type DeadlineData struct {
	Kind string `json:"kind"` // sleep or expiry
	At   Time   `json:"at"`
}

// CommandData is a command that was accepted, has changed or has ended.
type CommandData struct {
	Command Command `json:"command"`
}

// ScreenshotData is an image that the agent has shown.
type ScreenshotData struct {
	Image       Image  `json:"image"`
	Description string `json:"description,omitempty"`
}

// GitStateData is the branch that the agent works on, either as reported by the agent or as
// observed in the sandbox at the end of a turn.
type GitStateData struct {
	Branch      string `json:"branch"`
	BaseBranch  string `json:"baseBranch,omitempty"`
	Commit      string `json:"commit,omitempty"`
	CommitCount int64  `json:"commitCount,omitempty"` // since the base
	Dirty       bool   `json:"dirty,omitempty"`       // the workspace has uncommitted changes
	Source      string `json:"source,omitempty"`      // agent or workspace
}

// ReviewData is an agent's request for a review by people.
type ReviewData struct {
	Title       string   `json:"title"`
	Description string   `json:"description,omitempty"`
	Files       []string `json:"files,omitempty"` // relative to the workspace
}

// ReviewResultData is the agent's report about changes that it was asked to review.
type ReviewResultData struct {
	Summary  string          `json:"summary"`
	Verdict  string          `json:"verdict,omitempty"` // approve, comment or request_changes
	Findings []ReviewFinding `json:"findings,omitempty"`
}

// ReviewFinding is one finding of a review.
type ReviewFinding struct {
	File     string `json:"file,omitempty"` // relative to the workspace
	Line     int64  `json:"line,omitempty"`
	Severity string `json:"severity,omitempty"` // info, warning or error
	Comment  string `json:"comment"`
}

// PullRequestData is a pull request that the agent has recorded, or a change to a pull request.
type PullRequestData struct {
	Operation  string `json:"operation"` // create or update
	Title      string `json:"title,omitempty"`
	Body       string `json:"body,omitempty"`
	Branch     string `json:"branch,omitempty"`
	BaseBranch string `json:"baseBranch,omitempty"`
	Number     int64  `json:"number,omitempty"`
	URL        string `json:"url,omitempty"`
	State      string `json:"state,omitempty"` // draft, open, merged or closed
}

// CaughtUpData is the data of MarkerCaughtUp.
type CaughtUpData struct {
	Seq int64 `json:"seq"`
}

// GapData is the data of MarkerGap: the first and the last position whose events were deleted.
type GapData struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}
