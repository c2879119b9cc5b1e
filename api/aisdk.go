package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/aisdk"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// maxChatBytes bounds the body of a request with a whole conversation. Only its last message is
// used.
const maxChatBytes = 8 << 20

// aiTurns are the routes of the AI SDK.
type aiTurns struct {
	*prompts
	turns turnStore
	conversationStore
}

// aiEncoder writes chunks as server-sent events.
type aiEncoder struct{ *aisdk.Encoder }

func (e aiEncoder) Start() []byte { return aisdk.AppendSSE(nil, e.Encoder.Start()) }

func (e aiEncoder) Next(ev eventlog.Event) ([]byte, error) {
	chunks, err := e.Encoder.Next(ev)
	return e.done(aisdk.AppendSSE(nil, chunks)), err
}

func (e aiEncoder) Gap(gap feed.Gap) []byte {
	return aisdk.AppendSSE(nil, e.Encoder.Gap(gap.From, gap.To, gap.Compacted))
}

func (e aiEncoder) Finish(p resource.PromptJSON, seq int64) []byte {
	return e.done(aisdk.AppendSSE(nil, e.Encoder.Finish(p, seq)))
}

func (e aiEncoder) done(frames []byte) []byte {
	if e.Complete() {
		frames = append(frames, aisdk.Done...)
	}
	return frames
}

// submit handles a request of useChat's DefaultChatTransport: the last message is the prompt, and
// the response is its turn. A repeated message creates no new prompt.
func (s *aiTurns) submit(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	body, err := chatBody(c)
	if err != nil {
		return err
	}
	body.short("id", maxChatID)
	body.short("messageId", maxChatID)
	trigger := body.oneOf("trigger", submitMessage, submitMessage, regenerateMessage)
	prompt := session.Prompt{
		SessionID: id, Status: session.PromptQueued, Mode: session.Followup, OnUnknown: body.onUnknown(),
		RequestID: idOfRequest(c), TraceParent: traceOf(c), CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
	prompt.ID, prompt.Content = body.lastMessage("messages")
	if err := body.done(); err != nil {
		return err
	}
	if trigger == regenerateMessage {
		return failure.Errorf(failure.NotSupported,
			"a turn cannot be regenerated; revert the session to the prompt (POST …/revert) and send the message again under another id")
	}
	ctx, release, err := s.openTurn(c)
	if err != nil {
		return err
	}
	defer release()
	if err := s.submitted(ctx, prompt); err != nil {
		return err
	}
	return s.stream(ctx, c, id, prompt.ID)
}

// The triggers of a request.
const (
	submitMessage     = "submit-message"
	regenerateMessage = "regenerate-message"
)

// maxChatID bounds the ids that the AI SDK generates.
const maxChatID = 256

// resume streams the turn of the running or next prompt, or of the prompt that the query names.
func (s *aiTurns) resume(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	messageID, named, err := messageNamed(c)
	if err != nil {
		return err
	}
	ctx, release, err := s.openTurn(c)
	if err != nil {
		return err
	}
	defer release()
	promptID := promptIDOf(messageID)
	if !named {
		pending, err := s.turns.PromptsPending(ctx, id, 1)
		if err != nil {
			return err
		}
		if len(pending) == 0 {
			return c.NoContent(http.StatusNoContent)
		}
		promptID = pending[0]
	}
	return s.stream(ctx, c, id, promptID)
}

func (s *aiTurns) stream(ctx context.Context, c echo.Context, id, promptID string) error {
	c.Response().Header().Set(aisdk.Header, aisdk.Version)
	return s.streamTurn(ctx, c, s.turns, aiEncoder{aisdk.NewEncoder(id, promptID)}, id, promptID)
}

// submitted stores a prompt within the time of a request, and notifies its session.
func (s *prompts) submitted(ctx context.Context, prompt session.Prompt) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	stored, _, created, err := s.submit(ctx, prompt)
	if err != nil {
		return err
	}
	s.notifyPrompt(ctx, stored)
	if created {
		s.metrics.prompts.Inc()
	}
	return nil
}

// onUnknown reads the policy for a lost outcome.
func (o *object) onUnknown() session.OnUnknown {
	return session.OnUnknown(o.oneOf("onUnknown", string(session.Hold), string(session.Hold), string(session.Retry), string(session.Fail)))
}

// lastMessage reads the id and the text of the last message of a chat, which must be the user's.
func (o *object) lastMessage(name string) (promptID, content string) {
	raw, ok := o.take(name)
	if !ok {
		o.required(name)
		return "", ""
	}
	var messages []json.RawMessage
	if err := json.Unmarshal(raw, &messages); err != nil || len(messages) == 0 {
		o.wrong(name, "must be a list of messages")
		return "", ""
	}
	field := fmt.Sprintf("%s[%d]", name, len(messages)-1)
	var last struct {
		ID    string `json:"id"`
		Role  string `json:"role"`
		Parts []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"parts"`
	}
	switch err := json.Unmarshal(messages[len(messages)-1], &last); {
	case err != nil:
		o.wrong(field, "must be a message with id, role and parts")
		return "", ""
	case last.Role != "user":
		o.wrong(field+".role", "must be user: the last message is the prompt")
		return "", ""
	case last.ID == "" || len(last.ID) > maxChatID:
		o.wrong(field+".id", "must be 1 to %d characters long", maxChatID)
		return "", ""
	}
	var texts []string
	for i, part := range last.Parts {
		if part.Type != "text" {
			o.wrong(fmt.Sprintf("%s.parts[%d].type", field, i), "must be text")
			return "", ""
		}
		texts = append(texts, part.Text)
	}
	return promptIDOf(last.ID), o.prompt(field+".parts", strings.Join(texts, "\n"))
}

// prompt checks text as the content of a prompt; the field is for errors.
func (o *object) prompt(field, text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		o.wrong(field, "must be text")
		return ""
	}
	at := &object{path: o.path, fields: map[string]json.RawMessage{field: quoted}, taken: map[string]bool{}, wrongFields: o.wrongFields, large: o.large}
	return at.content(field)
}

// promptIDOf returns the id of a message's prompt: the id of the message if it is valid for
// prompts.
func promptIDOf(messageID string) string {
	if session.ValidPromptID(messageID) {
		return messageID
	}
	sum := sha256.Sum256([]byte(messageID))
	return "msg_" + hex.EncodeToString(sum[:16])
}
