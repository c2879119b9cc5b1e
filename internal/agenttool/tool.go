package agenttool

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agentmessage"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Server is the name under which agents know the server of the tools.
const Server = "overwinter"

// The names of the tools.
const (
	SetTitle       = "set_title"
	SaveScreenshot = "save_screenshot"
	ReportGitState = "report_git_state"
	RequestReview  = "request_review"
	ReportReview   = "report_review"
	CreatePR       = "create_pr"
	UpdatePR       = "update_pr"
	SessionMessage = "session_message"
)

// The bounds of calls.
const (
	// MaxInputBytes bounds the input of a call.
	MaxInputBytes = 256 << 10
	// MaxPerTurn bounds the calls of a turn.
	MaxPerTurn = 500
	// The bounds of inputs, in characters.
	maxTitle       = 500 // of a review or a pull request
	maxDescription = 10_000
	maxBody        = 60_000
	maxMessage     = 20_000
	maxRef         = 255 // of a branch or a commit
	maxURL         = 2048
	maxPath        = 1024
	// maxFiles bounds the files of a review.
	maxFiles = 100
	// maxFindings bounds the findings of a review, maxComment the length of each, in characters.
	maxFindings = 100
	maxComment  = 4000
	// maxCount bounds numbers.
	maxCount = 1 << 31
)

// Tool describes a tool to an agent.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // of its input
}

// All returns the tools, in the order in which agents see them.
func All() []Tool {
	return []Tool{
		{
			Name:        SetTitle,
			Description: "Set the title of this session, which people see in their list of sessions. Call this tool once you know the subject of the task, and again if it changes. A title set by a person is kept.",
			Schema: object(
				text("title", fmt.Sprintf("A few words in the language of the user, at most %d characters.", session.MaxTitleRunes), session.MaxTitleRunes),
			),
		},
		{
			Name: SaveScreenshot,
			Description: "Show a screenshot or another image to the people of this session, for example the result of your work. " +
				"The file stays where it is.",
			Schema: object(
				text("path", "The image: PNG, JPEG, GIF or WebP, of at most 10 MiB. Absolute, or relative to the workspace.", maxPath),
				optional(text("description", "A description of the image.", maxDescription)),
			),
		},
		{
			Name:        ReportGitState,
			Description: "Report your current branch after you create it, switch to it or commit to it.",
			Schema:      object(text("branch", "The branch.", maxRef), baseBranch, optional(text("commit", "The hash of its newest commit.", maxRef)), number("commitCount", "The number of its commits since the base.")),
		},
		{
			Name:        RequestReview,
			Description: "Ask the people of this session to review your changes. End your turn afterwards: they answer with a prompt.",
			Schema: object(
				text("title", "The subject of the review, in a few words.", maxTitle),
				optional(text("description", "The changes, the reasons for them, and the parts that need close attention.", maxDescription)),
				list("files", "The files to look at, relative to the workspace.", maxFiles, maxPath),
			),
		},
		{
			Name: ReportReview,
			Description: "Report the result of a review that you were asked for. " +
				"The people of this session see it; do not change the files unless you are asked to.",
			Schema: object(
				text("summary", "The scope of the review and your assessment.", maxDescription),
				choice("verdict", "Your verdict on the changes.", "approve", "comment", "request_changes"),
				objects("findings", "The findings, most important first.", maxFindings,
					optional(text("file", "The file, relative to the workspace.", maxPath)), number("line", "The line."),
					choice("severity", "The severity of the finding.", "info", "warning", "error"), text("comment", "The problem and how to fix it.", maxComment)),
			),
		},
		{
			Name:        CreatePR,
			Description: "Record a pull request that you have prepared, for the people of this session. It is not opened at the host of the repository.",
			Schema: object(append([]property{
				text("title", "The title of the pull request.", maxTitle), text("branch", "The branch with the changes.", maxRef),
			}, pullRequest...)...),
		},
		{
			Name:        UpdatePR,
			Description: "Record a change of the pull request of this session: its texts, or its number, URL and state at the host of the repository.",
			Schema: object(append([]property{
				optional(text("title", "The title of the pull request.", maxTitle)), optional(text("branch", "The branch with the changes.", maxRef)),
			}, pullRequest...)...),
		},
		{
			Name: SessionMessage,
			Description: "Send a message to this session, as a prompt that you work on in a later turn, after the prompts that are already queued, " +
				"for example to continue with another step of a large task. Or send it to the agent of the session that this one was forked from, " +
				"or of one that was forked from this one. " +
				fmt.Sprintf("Between two prompts of people in a session, you can send it %d messages. A chain of messages that answer each other ends after %d.",
					session.MaxAgentPrompts, session.MaxAgentDepth),
			Schema: object(text("message", "The prompt.", maxMessage), recipient),
		},
	}
}

var (
	recipient = property{name: "to", schema: map[string]any{
		"type": "string", "pattern": "^(" + agentmessage.Self + "|" + agentmessage.Parent + "|ses_[0-9a-f]{32})$", "default": agentmessage.Self,
		"description": "The receiving session: self (this one), parent, or the id of a session that was forked from this one.",
	}}
	baseBranch  = optional(text("baseBranch", "The branch to merge the changes into.", maxRef))
	pullRequest = []property{
		optional(text("body", "The changes and the reasons for them, in Markdown.", maxBody)), baseBranch,
		number("number", "Its number at the host of the repository."), optional(text("url", "Its address.", maxURL)),
		choice("state", "Its state.", "draft", "open", "merged", "closed"),
	}
)

// Call is the call of a tool.
type Call struct {
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input"`
	// Image is the file that a call of SaveScreenshot names. It is read in the agent's sandbox.
	Image []byte `json:"image,omitempty"`
}

// Answer is the answer to the agent.
type Answer struct {
	Text   string `json:"text"`
	Failed bool   `json:"failed,omitempty"`
}

// Refuse returns the answer to a call that is not executed.
func Refuse(format string, args ...any) Answer {
	return Answer{Text: fmt.Sprintf(format, args...), Failed: true}
}

// prefixes are the prefixes that agents put before the names of a server's tools.
var prefixes = []string{"mcp__" + Server + "__", "mcp_" + Server + "_", Server + "__", Server + "_", Server + ".", Server + "/"}

// Own reports whether an agent's name of a tool, such as mcp__overwinter__set_title, names one of
// All.
func Own(name string) bool {
	for _, prefix := range prefixes {
		if own, found := strings.CutPrefix(name, prefix); found {
			return slices.ContainsFunc(All(), func(t Tool) bool { return t.Name == own })
		}
	}
	return false
}
