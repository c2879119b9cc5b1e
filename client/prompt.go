package client

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"

	"github.com/google/uuid"
)

// PromptStatus says how far a prompt has come.
type PromptStatus string

// The statuses of a prompt.
const (
	PromptQueued     PromptStatus = "queued"
	PromptProcessing PromptStatus = "processing"
	PromptCompleted  PromptStatus = "completed"
	PromptFailed     PromptStatus = "failed"
	PromptCancelled  PromptStatus = "cancelled"
	// PromptUnknown: it may have been delivered to the agent or not. See OnUnknown.
	PromptUnknown PromptStatus = "unknown"
)

// Final reports whether a prompt with this status has ended. One that is unknown may be queued
// again.
func (s PromptStatus) Final() bool { return s != PromptQueued && s != PromptProcessing }

// OnUnknown says what happens to a prompt if it may have been delivered to the agent or not.
type OnUnknown string

// The policies; the default is OnUnknownHold.
const (
	OnUnknownHold  OnUnknown = "hold" // a person decides
	OnUnknownRetry OnUnknown = "retry"
	OnUnknownFail  OnUnknown = "fail"
)

// Mode says how a prompt meets a turn that is running.
type Mode string

// The modes; the default is ModeFollowup.
const (
	ModeFollowup Mode = "followup" // it waits for its turn
	ModeSteer    Mode = "steer"    // it is given to the turn in progress or, if the agent does not take that, interrupts it
	ModeCollect  Mode = "collect"  // it waits a moment for others, and they become one turn
)

// Prompt is a prompt.
type Prompt struct {
	ID        string       `json:"id"`
	SessionID string       `json:"sessionId"`
	Ordinal   int64        `json:"ordinal"`
	Rank      int64        `json:"rank,omitempty"`
	Status    PromptStatus `json:"status"`
	// Content is empty in events after the first of a prompt.
	Content   string    `json:"content"`
	Mode      Mode      `json:"mode"`
	OnUnknown OnUnknown `json:"onUnknown"`
	Author    string    `json:"author,omitempty"`
	Depth     int64     `json:"depth,omitempty"` // how many messages of agents led to it, one by the other
	RunID     string    `json:"runId,omitempty"` // which it keeps when it is queued again
	Attempts  int       `json:"attempts,omitempty"`
	Reason    string    `json:"reason,omitempty"` // why it ended as it did
	// BlockedReason is why a queued prompt does not run.
	BlockedReason string `json:"blockedReason,omitempty"`
	// JoinedTo is the prompt with which the agent gets this one.
	JoinedTo string `json:"joinedTo,omitempty"`
	// CollectUntil is until when others may join it.
	CollectUntil *Time        `json:"collectUntil,omitempty"`
	Attachments  []Attachment `json:"attachments,omitempty"`
	// RequestID is the X-Request-Id of the request that accepted it.
	RequestID string `json:"requestId,omitempty"`
	// Resolution is the decision of a person about an unknown outcome.
	Resolution *Resolution `json:"resolution,omitempty"`
	// Usage and Model are those of its last run, once that has ended. Events do not have them:
	// turn_end has.
	Usage     *Usage `json:"usage,omitempty"`
	Model     string `json:"model,omitempty"`
	CreatedAt Time   `json:"createdAt"`
	StartedAt *Time  `json:"startedAt,omitempty"`
	EndedAt   *Time  `json:"endedAt,omitempty"`
}

// Attachment is a file that a prompt comes with.
type Attachment struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	MediaType string `json:"mediaType"`
	Bytes     int64  `json:"bytes"`
}

// Usage is the consumption of a run.
type Usage struct {
	InputTokens  int64    `json:"inputTokens"`
	OutputTokens int64    `json:"outputTokens"`
	ToolCalls    int64    `json:"toolCalls"`
	CostUSD      *float64 `json:"costUsd"` // nil if it is not known
}

// Resolution is the decision of a person about a prompt whose outcome was unknown.
type Resolution struct {
	Action string `json:"action"` // retry, resolve or dismiss
	Note   string `json:"note,omitempty"`
	At     Time   `json:"at"`
}

// Submit is a prompt for a session.
type Submit struct {
	Content   string    `json:"content"`
	ID        string    `json:"id,omitempty"` // default: a new one
	Mode      Mode      `json:"mode,omitempty"`
	OnUnknown OnUnknown `json:"onUnknown,omitempty"`
	Files     []File    `json:"-"` // attachments
}

// File is a file that a prompt comes with.
type File struct {
	Name string
	Data []byte
}

// form is a body that is not JSON.
type form struct {
	contentType string
	data        []byte
}

// formWith is a form with a value as JSON, and files.
func formWith(field string, value any, files []File) (form, error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	encoded, err := json.Marshal(value)
	if err == nil {
		err = w.WriteField(field, string(encoded))
	}
	for _, f := range files {
		part, partErr := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {
			mime.FormatMediaType("form-data", map[string]string{"name": "file", "filename": f.Name}),
		}})
		if partErr == nil {
			_, partErr = part.Write(f.Data)
		}
		err = errors.Join(err, partErr)
	}
	err = errors.Join(err, w.Close())
	return form{w.FormDataContentType(), b.Bytes()}, err
}

// Submitted is a prompt that was stored.
type Submitted struct {
	Prompt   Prompt `json:"prompt"`
	Position int64  `json:"position"` // in the queue
	// Created is false if the same prompt was stored before, by any client: then its events may be
	// anywhere in the log.
	Created bool `json:"-"`
}

// PromptSubmit stores a prompt at the end of the queue, once, also if the call is repeated with the same ID.
func (c *Client) PromptSubmit(ctx context.Context, sessionID string, p Submit) (Submitted, error) {
	if p.ID == "" {
		p.ID = newPromptID() // ours, so that a second try finds the first
	}
	var answer Submitted
	var body any = p
	if len(p.Files) > 0 {
		encoded, err := formWith("prompt", p, p.Files)
		if err != nil {
			return answer, fmt.Errorf("encode the prompt: %w", err)
		}
		body = encoded
	}
	status, err := c.call(ctx, http.MethodPost, sessionPath(sessionID)+"/prompts", body, &answer)
	answer.Created = status == http.StatusAccepted
	return answer, err
}

// Review asks the agent for a review of the changes in a session's workspace. It is a prompt; an event review_result has what the agent
// reports. Instructions say what to look at; empty is everything. An empty id is a new one.
func (c *Client) Review(ctx context.Context, sessionID, instructions, promptID string) (answer Submitted, err error) {
	if promptID == "" {
		promptID = newPromptID()
	}
	body := map[string]string{"id": promptID}
	if instructions != "" {
		body["instructions"] = instructions
	}
	status, err := c.call(ctx, http.MethodPost, sessionPath(sessionID)+"/review", body, &answer)
	answer.Created = status == http.StatusAccepted
	return answer, err
}

// newPromptID makes an ID that sorts by time, like those of the server.
func newPromptID() string {
	id := uuid.Must(uuid.NewV7())
	return "prm_" + hex.EncodeToString(id[:])
}

// PromptGet returns a prompt.
func (c *Client) PromptGet(ctx context.Context, sessionID, promptID string) (p Prompt, err error) {
	_, err = c.call(ctx, http.MethodGet, promptPath(sessionID, promptID), nil, &p)
	return p, err
}

// PromptList lists the prompts of a session, oldest first.
func (c *Client) PromptList(ctx context.Context, sessionID string) (Page[Prompt], error) {
	return list[Prompt](ctx, c, sessionPath(sessionID)+"/prompts", nil, 0)
}

// PromptWithdraw cancels a queued prompt.
func (c *Client) PromptWithdraw(ctx context.Context, sessionID, promptID string) (p Prompt, err error) {
	_, err = c.call(ctx, http.MethodDelete, promptPath(sessionID, promptID), nil, &p)
	return p, err
}

// PromptReplace replaces the content of a queued prompt.
func (c *Client) PromptReplace(ctx context.Context, sessionID, promptID, content string) (p Prompt, err error) {
	_, err = c.call(ctx, http.MethodPut, promptPath(sessionID, promptID), map[string]string{"content": content}, &p)
	return p, err
}

// PromptPromote puts a queued prompt before all others that wait.
func (c *Client) PromptPromote(ctx context.Context, sessionID, promptID string) (p Prompt, err error) {
	_, err = c.call(ctx, http.MethodPost, promptPath(sessionID, promptID)+"/promote", struct{}{}, &p)
	return p, err
}

// PromptRetryAttempt queues a prompt whose outcome is unknown again. attempt is the Attempts of the prompt, of which the last has the unknown
// outcome: with it a request that is sent again, because its answer was lost, does not run the prompt twice.
func (c *Client) PromptRetryAttempt(ctx context.Context, sessionID, promptID string, attempt int) (p Prompt, err error) {
	_, err = c.call(ctx, http.MethodPost, promptPath(sessionID, promptID)+"/retry", map[string]int{"attempt": attempt}, &p)
	return p, err
}

// PromptRetry queues a prompt whose outcome is unknown again. runID is its run, or empty. If the prompt can become unknown again,
// PromptRetryAttempt is safer.
func (c *Client) PromptRetry(ctx context.Context, sessionID, promptID, runID string) (Prompt, error) {
	body := map[string]string{}
	if runID != "" {
		body["runId"] = runID
	}
	return c.promptResolve(ctx, sessionID, promptID, "retry", body)
}

// PromptResolve says how a prompt whose outcome is unknown ended: PromptCompleted or PromptFailed.
func (c *Client) PromptResolve(ctx context.Context, sessionID, promptID string, outcome PromptStatus, note string) (Prompt, error) {
	return c.promptResolve(ctx, sessionID, promptID, "resolve", map[string]string{"outcome": string(outcome), "note": note})
}

// PromptDismiss ends a prompt whose outcome is unknown as cancelled.
func (c *Client) PromptDismiss(ctx context.Context, sessionID, promptID, note string) (Prompt, error) {
	return c.promptResolve(ctx, sessionID, promptID, "dismiss", map[string]string{"note": note})
}

func (c *Client) promptResolve(ctx context.Context, sessionID, promptID, action string, body map[string]string) (p Prompt, err error) {
	_, err = c.call(ctx, http.MethodPost, promptPath(sessionID, promptID)+"/"+action, body, &p)
	return p, err
}

func promptPath(sessionID, promptID string) string {
	return sessionPath(sessionID) + "/prompts/" + url.PathEscape(promptID)
}
