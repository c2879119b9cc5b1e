package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// maxResumed bounds the answers of one request.
	maxResumed = 100
	// maxLookedUp bounds the messages of a request that are looked up as prompts.
	maxLookedUp = 20
)

// aguiRuns are the routes of AG-UI.
type aguiRuns struct {
	*prompts
	questions *questions
	turns     turnStore

	conversations conversationStore
	// building bounds the snapshots that are collected concurrently.
	building chan struct{}
}

// runInput is the body of a request: AG-UI's RunAgentInput.
type runInput struct {
	threadID, runID string
	// prompt is the last message if it is the user's; otherwise its content is empty.
	prompt session.Prompt
	// promptIDs lists the ids of prompts that the user's messages may refer to, newest first.
	promptIDs []string
	answers   []resumed
}

// resumed is the answer to a question.
type resumed struct {
	questionID string
	answer     question.Answer
	cancelled  bool
}

// run handles a request of HttpAgent. The response is the conversation so far, followed by the
// events until the prompt has ended or a question is open.
func (s *aguiRuns) run(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	body, err := chatBody(c)
	if err != nil {
		return err
	}
	in := body.runInput()
	if err := body.done(); err != nil {
		return err
	}
	ctx, release, err := s.openTurn(c)
	if err != nil {
		return err
	}
	defer release()
	for _, r := range in.answers {
		if err := s.answered(ctx, id, r); err != nil {
			return err
		}
	}
	promptID := in.prompt.ID
	if promptID == "" {
		promptID, err = s.findPrompt(ctx, id, in)
	} else {
		in.prompt.SessionID, in.prompt.RequestID, in.prompt.TraceParent = id, idOfRequest(c), traceOf(c)
		err = s.submit(ctx, in.prompt)
	}
	if err != nil {
		return err
	}
	return s.stream(ctx, c, aguiRun{sessionID: id, threadID: in.threadID, runID: in.runID, promptID: promptID})
}

// attach streams the session to a client that sends no message, until the running or next prompt,
// or the prompt that the query names, has ended.
func (s *aguiRuns) attach(c echo.Context) error {
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
	run := aguiRun{sessionID: id, threadID: id, runID: id}
	if named {
		run.promptID = promptIDOf(messageID)
	} else {
		pending, err := s.turns.PromptsPending(ctx, id, 1)
		if err != nil {
			return err
		}
		if len(pending) > 0 {
			run.promptID = pending[0]
		}
	}
	if run.promptID != "" {
		run.runID = run.promptID
	}
	return s.stream(ctx, c, run)
}

// answered stores the answer to a question. A repeated answer, and the cancellation of a closed
// question, have no effect.
func (s *aguiRuns) answered(ctx context.Context, id string, r resumed) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	_, refused := s.questions.answer(ctx, id, r.questionID, r.answer)
	switch failure.CodeOf(refused) {
	case failure.Answered, failure.Expired, failure.Cancelled:
	default:
		return refused
	}
	if r.cancelled {
		return nil
	}
	q, err := s.questions.store.QuestionGet(ctx, id, r.questionID)
	if err != nil {
		return err
	}
	if q.Answer == nil || !sameAnswer(*q.Answer, r.answer) {
		return refused
	}
	return nil
}

// sameAnswer compares answers in their stored form.
func sameAnswer(a, b question.Answer) bool {
	a.By, b.By = "", "" // regardless of the client
	one, err := json.Marshal(a)
	other, otherErr := json.Marshal(b)
	return err == nil && otherErr == nil && bytes.Equal(one, other)
}

// submit submits the last message, unless it is already stored as a prompt, in its sent form or in
// the masked form of snapshots.
func (s *aguiRuns) submit(ctx context.Context, prompt session.Prompt) error {
	if stored, err := s.turns.PromptGet(ctx, prompt.SessionID, prompt.ID); err == nil {
		masker, err := s.cfg.Masks.Masker(ctx)
		if err != nil {
			return err
		}
		if stored.Content == prompt.Content || masker.Text(stored.Content) == prompt.Content {
			return nil
		}
	}
	return s.submitted(ctx, prompt)
}

// findPrompt finds the newest message that is a prompt of the session.
func (s *aguiRuns) findPrompt(ctx context.Context, id string, in runInput) (string, error) {
	for _, promptID := range in.promptIDs {
		_, err := s.turns.PromptGet(ctx, id, promptID)
		if failure.CodeOf(err) != failure.NoPrompt {
			return promptID, err
		}
	}
	return "", failure.Errorf(failure.NoPrompt, "none of the user's messages is a prompt of the session, and the last message is not the user's")
}

// runInput reads a RunAgentInput. It ignores fields that later versions of the protocol may add.
func (o *object) runInput() runInput {
	var in runInput
	in.threadID, in.runID = o.chatID("threadId"), o.chatID("runId")
	for _, name := range []string{"tools", "context"} {
		if raw, ok := o.take(name); ok && !emptyList(raw) {
			o.wrong(name, "must be an empty list: the agent of a session has its own")
		}
	}
	in.prompt, in.promptIDs = o.runMessages("messages")
	in.answers = o.resume("resume")
	for name := range o.fields {
		o.taken[name] = true
	}
	return in
}

func emptyList(raw json.RawMessage) bool {
	var list []json.RawMessage
	return json.Unmarshal(raw, &list) == nil && len(list) == 0
}

// chatID reads an id chosen by the client.
func (o *object) chatID(name string) string {
	o.required(name)
	id, ok := o.text(name)
	if ok && (id == "" || len(id) > maxChatID) {
		o.wrong(name, "must be 1 to %d bytes long", maxChatID)
	}
	return id
}

// runMessages reads the messages of a run. The last message is the prompt if it is the user's;
// otherwise runMessages returns the ids of prompts that may be meant.
func (o *object) runMessages(name string) (prompt session.Prompt, promptIDs []string) {
	raw, ok := o.take(name)
	if !ok {
		o.required(name)
		return prompt, nil
	}
	var messages []json.RawMessage
	if err := json.Unmarshal(raw, &messages); err != nil || len(messages) == 0 {
		o.wrong(name, "must be a list of messages, at least one")
		return prompt, nil
	}
	for i := len(messages) - 1; i >= 0 && len(promptIDs) < maxLookedUp; i-- {
		field := fmt.Sprintf("%s[%d]", name, i)
		var m struct {
			ID            string          `json:"id"`
			Role          string          `json:"role"`
			Content       json.RawMessage `json:"content"`
			SubagentRunID string          `json:"subagentRunId"`
		}
		if err := json.Unmarshal(messages[i], &m); err != nil {
			o.wrong(field, "must be a message with id, role and content")
			return prompt, nil
		}
		if m.Role != "user" || m.SubagentRunID != "" {
			continue
		}
		if m.ID == "" || len(m.ID) > maxChatID {
			o.wrong(field+".id", "must be 1 to %d bytes long", maxChatID)
			return prompt, nil
		}
		promptIDs = append(promptIDs, promptIDOf(m.ID))
		if i == len(messages)-1 {
			prompt = session.Prompt{
				ID: promptIDOf(m.ID), Content: o.prompt(field+".content", o.messageText(field+".content", m.Content)),
				Status: session.PromptQueued, Mode: session.Followup, OnUnknown: session.Hold, CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
			}
			return prompt, nil
		}
	}
	if len(promptIDs) == 0 {
		o.wrong(name, "must contain a user message; the last one is the prompt")
	}
	return prompt, promptIDs
}

// messageText returns the text of a message's content, which is a string or a list of text parts.
func (o *object) messageText(field string, raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		o.wrong(field, "must be a string or a list of parts")
		return "?" // prevents a second error for the same field
	}
	var texts []string
	for i, part := range parts {
		if part.Type != "text" {
			o.wrong(fmt.Sprintf("%s[%d].type", field, i), "must be text")
			return "?" // prevents a second error for the same field
		}
		texts = append(texts, part.Text)
	}
	return strings.Join(texts, "\n")
}

// resume reads the answers to interrupts.
func (o *object) resume(name string) []resumed {
	raw, ok := o.take(name)
	if !ok || string(raw) == "null" {
		return nil
	}
	var entries []json.RawMessage
	if err := json.Unmarshal(raw, &entries); err != nil {
		o.wrong(name, "must be a list of answers")
		return nil
	}
	if len(entries) > maxResumed {
		o.wrong(name, "has %d answers; at most %d are allowed", len(entries), maxResumed)
		return nil
	}
	var out []resumed
	for i, raw := range entries {
		field := fmt.Sprintf("%s[%d]", name, i)
		o.fields[field] = raw
		if entry := o.object(field); entry != nil {
			out = append(out, entry.resumed())
		}
		delete(o.fields, field)
	}
	return out
}

func (o *object) resumed() resumed {
	r := resumed{answer: question.Answer{Decision: question.Once}}
	o.required("interruptId")
	id, ok := o.text("interruptId")
	if r.questionID = id; ok && !session.ValidID(session.QuestionPrefix, id) {
		o.wrong("interruptId", "must be the id of a question: %s and 32 lower-case hexadecimal digits", session.QuestionPrefix)
	}
	o.required("status")
	r.cancelled = o.oneOf("status", "", "resolved", "cancelled") == "cancelled"
	if r.cancelled {
		r.answer.Decision = question.Reject
		return r
	}
	if payload := o.object("payload"); payload != nil {
		r.answer = payload.answer()
		payload.unknown()
	}
	return r
}
