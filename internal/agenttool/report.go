package agenttool

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/agentmessage"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// effect returns the effect of a valid call, or the answer that reports an error.
func (c *check) effect(kind conversation.EventType, data any, answer string) Effect {
	if c.fault != "" {
		return Effect{Answer: Refuse("%s", c.fault)}
	}
	return Effect{Events: []Event{{Type: kind, Data: data}}, Answer: Answer{Text: answer}}
}

func saveScreenshot(call Call) Effect {
	var c check
	var in struct {
		Path        string `json:"path"`
		Description string `json:"description"`
	}
	c.decode(call.Input, &in)
	c.optional("description", in.Description, maxDescription)
	image, ok := conversation.NewImage(call.Image)
	if !ok {
		c.refuse("The file must be a PNG, JPEG, GIF or WebP image of at most %d bytes.", conversation.MaxImageBytes)
	}
	e := c.effect(conversation.EventScreenshot, conversation.Screenshot{Image: image.Image, Description: in.Description},
		"The people of this session see the screenshot.")
	if c.fault == "" {
		e.Images = []conversation.ImageData{image}
	}
	return e
}

func reportGitState(input json.RawMessage) Effect {
	var c check
	var in struct {
		Branch      string `json:"branch"`
		BaseBranch  string `json:"baseBranch"`
		Commit      string `json:"commit"`
		CommitCount int64  `json:"commitCount"`
	}
	c.decode(input, &in)
	c.required("branch", in.Branch, maxRef)
	c.optional("baseBranch", in.BaseBranch, maxRef)
	c.optional("commit", in.Commit, maxRef)
	c.count("commitCount", in.CommitCount)
	state := conversation.GitState{
		Branch: in.Branch, BaseBranch: in.BaseBranch, Commit: in.Commit, CommitCount: in.CommitCount, Source: conversation.GitOfAgent,
	}
	return c.effect(conversation.EventGitState, state, "The people of this session see the state of git.")
}

func requestReview(input json.RawMessage) Effect {
	var c check
	var in conversation.Review
	c.decode(input, &in)
	c.required("title", in.Title, maxTitle)
	c.optional("description", in.Description, maxDescription)
	if len(in.Files) > maxFiles {
		c.refuse("files has %d items; at most %d are allowed.", len(in.Files), maxFiles)
	}
	for _, f := range in.Files {
		c.required("files", f, maxPath)
	}
	return c.effect(conversation.EventReviewRequested, in,
		"The people of this session are asked to review. They answer with a prompt; do not wait for it in this turn.")
}

func reportReview(input json.RawMessage) Effect {
	var c check
	var in conversation.ReviewResult
	c.decode(input, &in)
	c.required("summary", in.Summary, maxDescription)
	switch in.Verdict {
	case "", conversation.VerdictApprove, conversation.VerdictComment, conversation.VerdictRequestChanges:
	default:
		c.refuse("verdict must be one of: approve, comment, request_changes.")
	}
	if len(in.Findings) > maxFindings {
		c.refuse("findings has %d items; at most %d are allowed.", len(in.Findings), maxFindings)
	}
	for _, f := range in.Findings {
		c.required("comment", f.Comment, maxComment)
		c.optional("file", f.File, maxPath)
		c.count("line", f.Line)
		switch f.Severity {
		case "", conversation.SeverityInfo, conversation.SeverityWarning, conversation.SeverityError:
		default:
			c.refuse("severity must be one of: info, warning, error.")
		}
	}
	return c.effect(conversation.EventReviewResult, in, "The people of this session see the review.")
}

func changePullRequest(tool string, input json.RawMessage) Effect {
	var c check
	var in conversation.PullRequest
	c.decode(input, &in)
	answer := "The change is recorded, and the people of this session see it."
	if in.Operation != "" {
		c.refuse("The input does not fit the schema of the tool: operation is not a field of it.")
	}
	if in.Operation = conversation.PullRequestUpdate; tool == CreatePR {
		in.Operation = conversation.PullRequestCreate
		c.required("title", in.Title, maxTitle)
		c.required("branch", in.Branch, maxRef)
		answer = "The pull request is recorded, and the people of this session see it. overwinter does not open it at the host of the repository: " +
			"push the branch and open it there if you can, then report its number and url with " + UpdatePR + "."
	}
	c.optional("title", in.Title, maxTitle)
	c.optional("body", in.Body, maxBody)
	c.optional("branch", in.Branch, maxRef)
	c.optional("baseBranch", in.BaseBranch, maxRef)
	c.count("number", in.Number)
	c.address("url", in.URL)
	switch in.State {
	case "", conversation.PullRequestDraft, conversation.PullRequestOpen, conversation.PullRequestMerged, conversation.PullRequestClosed:
	default:
		c.refuse("state must be one of: draft, open, merged, closed.")
	}
	return c.effect(conversation.EventPullRequest, in, answer)
}

func sessionMessage(input json.RawMessage) Effect {
	var c check
	var in struct {
		To      string `json:"to"`
		Message string `json:"message"`
	}
	c.decode(input, &in)
	c.required("message", in.Message, maxMessage)
	switch in.To {
	case "":
		in.To = agentmessage.Self
	case agentmessage.Self, agentmessage.Parent:
	default:
		if !session.ValidID(session.SessionPrefix, in.To) {
			c.refuse("to must be %q, %q or the id of a session.", agentmessage.Self, agentmessage.Parent)
		}
	}
	if c.fault != "" {
		return Effect{Answer: Refuse("%s", c.fault)}
	}
	of := "this session"
	if in.To != agentmessage.Self {
		of = "the other session"
	}
	return Effect{Message: &Message{To: in.To, Content: in.Message}, Answer: Answer{Text: "The message waits in the queue of " + of + "."}}
}
