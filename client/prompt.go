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

// PromptStatus is the progress of a prompt.
type PromptStatus string

// The statuses of a prompt.
const (
	PromptQueued     PromptStatus = "queued"
	PromptProcessing PromptStatus = "processing"
	PromptCompleted  PromptStatus = "completed"
	PromptFailed     PromptStatus = "failed"
	PromptCancelled  PromptStatus = "cancelled"
	// PromptUnknown means that it is unknown whether the prompt was delivered to the agent. See
	// OnUnknown.
	PromptUnknown PromptStatus = "unknown"
)

// Final reports whether a prompt with this status has ended. An unknown prompt may be queued again.
func (s PromptStatus) Final() bool { return s != PromptQueued && s != PromptProcessing }

// OnUnknown is the policy for a prompt if it is unknown whether it was delivered to the agent.
type OnUnknown string

// The policies; the default is OnUnknownHold.
const (
	OnUnknownHold  OnUnknown = "hold" // a person decides
	OnUnknownRetry OnUnknown = "retry"
	OnUnknownFail  OnUnknown = "fail"
)

// Mode determines how a prompt interacts with a running turn.
type Mode string

// The modes; the default is ModeFollowup.
const (
	ModeFollowup Mode = "followup" // waits in the queue
	ModeSteer    Mode = "steer"    // is given to the running turn or, if the agent does not support that, interrupts it
	ModeCollect  Mode = "collect"  // waits briefly for other prompts and runs together with them in one turn
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
	Depth     int64     `json:"depth,omitempty"` // length of the chain of agent messages that led to this prompt
	RunID     string    `json:"runId,omitempty"` // unchanged when the prompt is queued again
	Attempts  int       `json:"attempts,omitempty"`
	Reason    string    `json:"reason,omitempty"` // reason for the outcome
	// BlockedReason is the reason why a queued prompt does not run.
	BlockedReason string `json:"blockedReason,omitempty"`
	// JoinedTo is the id of the prompt with which this prompt is delivered to the agent.
	JoinedTo string `json:"joinedTo,omitempty"`
	// CollectUntil is the time until which other prompts may join this one.
	CollectUntil *Time        `json:"collectUntil,omitempty"`
	Attachments  []Attachment `json:"attachments,omitempty"`
	// RequestID is the X-Request-Id of the request that accepted it.
	RequestID string `json:"requestId,omitempty"`
	// Resolution is a person's decision about an unknown outcome.
	Resolution *Resolution `json:"resolution,omitempty"`
	// Usage and Model describe the last run once it has ended. In events they are empty; the event
	// turn_end has them.
	Usage     *Usage `json:"usage,omitempty"`
	Model     string `json:"model,omitempty"`
	CreatedAt Time   `json:"createdAt"`
	StartedAt *Time  `json:"startedAt,omitempty"`
	EndedAt   *Time  `json:"endedAt,omitempty"`
}

// Attachment is a file attached to a prompt.
type Attachment struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	MediaType string `json:"mediaType"`
	Bytes     int64  `json:"bytes"`
}

// Usage is the resource usage of a run.
type Usage struct {
	InputTokens  int64    `json:"inputTokens"`
	OutputTokens int64    `json:"outputTokens"`
	ToolCalls    int64    `json:"toolCalls"`
	CostUSD      *float64 `json:"costUsd"` // nil if it is not known
}

// Resolution is a person's decision about a prompt whose outcome was unknown.
type Resolution struct {
	Action string `json:"action"` // retry, resolve or dismiss
	Note   string `json:"note,omitempty"`
	At     Time   `json:"at"`
}

// Submit is a prompt for a session.
type Submit struct {
	Content   string    `json:"content"`
	ID        string    `json:"id,omitempty"` // default: a new id
	Mode      Mode      `json:"mode,omitempty"`
	OnUnknown OnUnknown `json:"onUnknown,omitempty"`
	Files     []File    `json:"-"` // attachments
}

// File is a file to attach to a prompt.
type File struct {
	Name string
	Data []byte
}

// form is a multipart request body.
type form struct {
	contentType string
	data        []byte
}

// formWith returns a form with a value as JSON, and files.
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
	// Created is false if any client has stored the same prompt before. Its events may then be
	// anywhere in the log.
	Created bool `json:"-"`
}

// PromptSubmit stores a prompt at the end of the queue. A repeated call with the same ID does not
// store it again.
func (c *Client) PromptSubmit(ctx context.Context, sessionID string, p Submit) (Submitted, error) {
	if p.ID == "" {
		p.ID = newPromptID() // chosen by the client, so that a retry finds the first prompt
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

// Review asks the agent for a review of the changes in a session's workspace. The review is a
// prompt; the event review_result has the agent's report. The instructions narrow the review; by
// default it covers all changes. If id is empty, a new id is generated.
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

// newPromptID returns an ID that sorts by time, like the server's IDs.
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

// PromptPromote moves a queued prompt to the front of the queue.
func (c *Client) PromptPromote(ctx context.Context, sessionID, promptID string) (p Prompt, err error) {
	_, err = c.call(ctx, http.MethodPost, promptPath(sessionID, promptID)+"/promote", struct{}{}, &p)
	return p, err
}

// PromptRetryAttempt requeues a prompt whose outcome is unknown. attempt is the value of the
// prompt's Attempts field, that is, the number of the attempt with the unknown outcome. It ensures
// that a request that is repeated because its response was lost does not run the prompt twice.
func (c *Client) PromptRetryAttempt(ctx context.Context, sessionID, promptID string, attempt int) (p Prompt, err error) {
	_, err = c.call(ctx, http.MethodPost, promptPath(sessionID, promptID)+"/retry", map[string]int{"attempt": attempt}, &p)
	return p, err
}

// PromptRetry requeues a prompt whose outcome is unknown. runID is the run of the prompt, or empty.
// If the outcome can become unknown again, PromptRetryAttempt is safer.
func (c *Client) PromptRetry(ctx context.Context, sessionID, promptID, runID string) (Prompt, error) {
	body := map[string]string{}
	if runID != "" {
		body["runId"] = runID
	}
	return c.promptResolve(ctx, sessionID, promptID, "retry", body)
}

// PromptResolve sets the outcome of a prompt whose outcome is unknown: PromptCompleted or
// PromptFailed.
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
