package agenttool

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Effect is the effect of a call.
type Effect struct {
	Events []Event
	// Images are named by the events.
	Images []conversation.ImageData
	// Message is the prompt to send; nil if there is none.
	Message *Message
	Answer  Answer
}

// Message is a prompt that the agent sends.
type Message struct {
	To      string // agentmessage.Self, agentmessage.Parent or a session
	Content string
}

// Event is an event of the session.
type Event struct {
	Type conversation.EventType
	Data any
}

// Execute returns the effect of a call. It depends only on the call.
func Execute(c Call) Effect {
	if len(c.Input) > MaxInputBytes {
		return Effect{Answer: Refuse("The input has %d bytes; at most %d are allowed.", len(c.Input), MaxInputBytes)}
	}
	switch c.Tool {
	case SetTitle:
		return setTitle(c.Input)
	case SaveScreenshot:
		return saveScreenshot(c)
	case ReportGitState:
		return reportGitState(c.Input)
	case RequestReview:
		return requestReview(c.Input)
	case ReportReview:
		return reportReview(c.Input)
	case CreatePR, UpdatePR:
		return changePullRequest(c.Tool, c.Input)
	case SessionMessage:
		return sessionMessage(c.Input)
	}
	return Effect{Answer: Refuse("There is no tool %q.", conversation.BoundedID(c.Tool))}
}

func setTitle(input json.RawMessage) Effect {
	var in struct {
		Title string `json:"title"`
	}
	if err := json.Unmarshal(input, &in); err != nil {
		return Effect{Answer: Refuse("The input must be an object with the string title.")}
	}
	title := strings.Join(strings.Fields(in.Title), " ")
	switch n := utf8.RuneCountInString(title); {
	case n == 0:
		return Effect{Answer: Refuse("title must not be empty.")}
	case n > session.MaxTitleRunes:
		return Effect{Answer: Refuse("title has %d characters; at most %d are allowed.", n, session.MaxTitleRunes)}
	}
	return Effect{
		Events: []Event{{Type: conversation.EventTitle, Data: conversation.Title{Title: title}}},
		Answer: Answer{Text: "The session has this title now, unless a person has set one."},
	}
}
