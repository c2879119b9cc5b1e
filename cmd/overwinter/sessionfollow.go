package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/apiclient"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/wire"
)

// SessionFollowCmd prints what happens in a session.
type SessionFollowCmd struct {
	sessionArg
	After int64  `default:"0" placeholder:"SEQ" help:"Start behind this position. Default ${default}, the beginning."`
	Until string `enum:"end,idle" default:"end" placeholder:"WHEN" help:"When to return: end, when the session is over, or idle, when no prompt is left to serve. Default ${default}."`
}

// Validate checks what kong cannot.
func (c *SessionFollowCmd) Validate() error {
	if c.After < 0 {
		return errors.New("--after must not be negative")
	}
	return nil
}

// Run prints a line for each event, with -o json each as it is.
func (c *SessionFollowCmd) Run(ctx context.Context, s streams, parent *SessionCmd) error {
	return parent.with(func(client *apiclient.Client) error {
		// The queue as it was before the first event is read: from there on the
		// events tell, so that nothing is left unread when it is found empty.
		var idle, caughtUp bool
		if c.Until == untilIdle {
			now, err := client.SessionGet(ctx, c.ID)
			if err != nil {
				return err
			}
			idle = now.Queue.Queued+now.Queue.Processing == 0
		}
		for e, err := range client.Follow(ctx, c.ID, c.After) {
			if err != nil {
				return fmt.Errorf("follow %s: %w", c.ID, err)
			}
			if err := printEvent(s.stdout, e, parent.json()); err != nil {
				return err
			}
			switch e.Type {
			case apiclient.MarkerCaughtUp:
				caughtUp = true
			case wire.EventQueue:
				var queue wire.QueueData
				if err := json.Unmarshal(e.Data, &queue); err != nil {
					return fmt.Errorf("read event %d: %w", e.Seq, err)
				}
				idle = len(queue.Items) == 0
			}
			if c.Until == untilIdle && caughtUp && idle {
				return nil
			}
		}
		return nil
	})
}

const untilIdle = "idle"

// printEvent writes one event. For people, what is only a step towards an event to
// come is left out.
func printEvent(w io.Writer, e apiclient.Event, asJSON bool) error {
	if asJSON {
		line := e.Raw
		if e.Marker() {
			var err error
			if line, err = json.Marshal(map[string]any{"type": e.Type, "data": e.Data}); err != nil {
				return fmt.Errorf("encode marker: %w", err)
			}
		}
		_, err := fmt.Fprintf(w, "%s\n", line)
		return err
	}
	text, err := describe(e)
	if err != nil || text == "" {
		return err
	}
	at := "            "
	if !e.Marker() {
		at = time.Time(e.At).Local().Format("15:04:05.000")
	}
	_, err = fmt.Fprintf(w, "%s  %s\n", at, text)
	return err
}

// lineRunes is how much of a prompt, an input or an output one line shows.
const lineRunes = 160

// describe says in words what an event is; "" for what needs no line.
func describe(e apiclient.Event) (string, error) {
	var d struct { // what the types have between them
		Status  session.State      `json:"status"`
		Reason  string             `json:"reason"`
		Receipt *wire.ReceiptJSON  `json:"receipt"`
		Prompt  wire.PromptJSON    `json:"prompt"`
		Attempt int64              `json:"attempt"`
		Outcome session.Outcome    `json:"outcome"`
		Block   conversation.Block `json:"block"`
		Title   string             `json:"title"`
		Code    string             `json:"code"`
		Message string             `json:"message"`
		From    int64              `json:"from"`
		To      int64              `json:"to"`

		Question   wire.QuestionJSON `json:"question"`
		QuestionID string            `json:"questionId"`
		Answer     string            `json:"answer"`
	}
	switch e.Type {
	case wire.EventQueue, string(conversation.EventBlockStart), string(conversation.EventTextDelta),
		string(conversation.EventBlockUpdate), string(conversation.EventMetadataUpdate), apiclient.MarkerCaughtUp:
		return "", nil
	}
	if err := json.Unmarshal(e.Data, &d); err != nil {
		return "", fmt.Errorf("read event %d: %w", e.Seq, err)
	}
	switch e.Type {
	case wire.EventStatus:
		receipt := ""
		if d.Receipt != nil {
			receipt = ", restored: " + string(d.Receipt.Kind)
		}
		return fmt.Sprintf("session %s%s%s", d.Status, inBrackets(oneLine(d.Reason, lineRunes)), receipt), nil
	case wire.EventPrompt:
		return fmt.Sprintf("prompt %s %s%s: %s", d.Prompt.ID, d.Prompt.Status, inBrackets(oneLine(d.Prompt.Reason, lineRunes)), oneLine(d.Prompt.Content, lineRunes)), nil
	case wire.EventTurnStart:
		if d.Attempt > 1 {
			return fmt.Sprintf("turn goes on, attempt %d", d.Attempt), nil
		}
		return "turn begins", nil
	case wire.EventTurnEnd:
		return fmt.Sprintf("turn %s%s", d.Outcome, inBrackets(oneLine(d.Reason, lineRunes))), nil
	case string(conversation.EventBlockComplete):
		return describeBlock(d.Block), nil
	case string(conversation.EventTitle):
		return "title: " + oneLine(d.Title, lineRunes), nil
	case string(conversation.EventError):
		return fmt.Sprintf("error %s: %s", d.Code, oneLine(d.Message, lineRunes)), nil
	case wire.EventQuestion:
		return fmt.Sprintf("asks %s: %s", d.Question.ID, describeQuestion(d.Question)), nil
	case wire.EventQuestionResolved:
		return fmt.Sprintf("question %s: %s", d.QuestionID, oneLine(d.Answer+d.Reason, lineRunes)), nil
	case apiclient.MarkerGap:
		return fmt.Sprintf("events %d to %d have been deleted", d.From, d.To), nil
	case apiclient.MarkerEnd:
		return "end", nil
	}
	return oneLine(e.Type+" "+string(e.Data), lineRunes), nil
}

func describeBlock(b conversation.Block) string {
	switch b.Type {
	case conversation.UserMessage:
		return "" // its prompt has been told
	case conversation.AssistantText:
		return "agent: " + indent(b.Content)
	case conversation.Thinking:
		return "thinks: " + oneLine(b.Content, lineRunes)
	case conversation.ToolUse:
		return fmt.Sprintf("tool %s %s", oneLine(b.Name, lineRunes), oneLine(string(b.Input), lineRunes))
	case conversation.ToolResult:
		verdict := "result"
		if b.IsError {
			verdict = "failed"
		}
		return verdict + ": " + oneLine(outputText(b.Output), lineRunes)
	case conversation.Subagent:
		return fmt.Sprintf("subagent %s %s", oneLine(b.Name, lineRunes), b.Status)
	case conversation.System:
		return fmt.Sprintf("system %s: %s", oneLine(b.Subtype, lineRunes), oneLine(b.Message, lineRunes))
	}
	return oneLine(string(b.Type), lineRunes)
}

// outputText is the text of an output that is one, else its JSON.
func outputText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// indent puts the lines of a text under each other, behind the time.
func indent(text string) string {
	return strings.ReplaceAll(strings.TrimRight(printable(text), "\n"), "\n", "\n              ")
}
