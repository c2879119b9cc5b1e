package apiclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/sethvargo/go-retry"

	"github.com/overwinter-dev/overwinter/internal/backoff"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// How calls are repeated.
const (
	attempts     = 4
	firstWait    = 100 * time.Millisecond
	callTimeout  = 30 * time.Second
	maxRetryWait = 5 * time.Second
	maxAnswer    = 256 << 20 // bytes; blocks of a long session are many
)

// Client talks to one server. It is safe for concurrent use.
type Client struct {
	base *url.URL
	key  string
	http *http.Client
}

// New returns a client of the server at baseURL, such as http://127.0.0.1:8080,
// that shows key where it is not empty.
func New(baseURL, key string) (*Client, error) {
	base, err := url.Parse(strings.TrimRight(baseURL, "/"))
	if err != nil {
		return nil, fmt.Errorf("address of the api: %w", err)
	}
	if (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("address of the api: %q must begin with http:// or https:// and name a host", baseURL)
	}
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("the default HTTP transport has been replaced by one that cannot be copied")
	}
	return &Client{base: base, key: key, http: &http.Client{Transport: transport.Clone()}}, nil
}

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Error is an answer that is a problem.
type Error struct {
	Status     int             `json:"status"`
	Code       failure.Code    `json:"code"`
	Detail     string          `json:"detail"`
	Fields     []failure.Field `json:"errors"`
	RetryAfter time.Duration   `json:"-"` // zero where the server did not say
}

func (e *Error) Error() string {
	text := e.Detail
	if len(e.Fields) > 1 {
		parts := make([]string, len(e.Fields))
		for i, f := range e.Fields {
			parts[i] = f.Field + " " + f.Message
		}
		text = strings.Join(parts, "; ")
	}
	return fmt.Sprintf("%s (%s)", text, e.Code)
}

// Create says what session to make.
type Create struct {
	Agent       string             `json:"agent"`
	Title       string             `json:"title,omitempty"`
	Profile     string             `json:"profile,omitempty"` // ID or name, @VERSION for one that is not the newest
	Workspace   *session.Workspace `json:"workspace,omitempty"`
	Prompt      *FirstPrompt       `json:"prompt,omitempty"`
	Sandbox     string             `json:"sandbox,omitempty"` // lazy or eager
	IdleTimeout string             `json:"idleTimeout,omitempty"`
	Metadata    map[string]any     `json:"metadata,omitempty"`
	Options     *session.Options   `json:"options,omitempty"`
}

// FirstPrompt is the prompt that a session begins with.
type FirstPrompt struct {
	Content string `json:"content"`
	ID      string `json:"id,omitempty"`
}

// SessionCreate makes a session. The same key and session again within 24 hours return the first one; an empty key is
// a new one.
func (c *Client) SessionCreate(ctx context.Context, create Create, key string) (resource.SessionJSON, error) {
	var s resource.SessionJSON
	if key == "" {
		key = uuid.NewString()
	}
	_, err := c.call(ctx, http.MethodPost, "/api/sessions", create, &s, "Idempotency-Key", key)
	return s, err
}

// SessionGet shows a session.
func (c *Client) SessionGet(ctx context.Context, id string) (resource.SessionJSON, error) {
	var s resource.SessionJSON
	_, err := c.call(ctx, http.MethodGet, sessionPath(id), nil, &s)
	return s, err
}

// List chooses sessions; the zero value all.
type List struct {
	Status, Agent, Query, Sort string
	Cursor                     string            // NextCursor of an earlier list
	Metadata                   map[string]string // members that the metadata must have
	Limit                      int               // at most this many; 0 for all
}

// pageSize is the most that one page holds.
const pageSize = 200

// SessionList returns sessions, newest first unless they are sorted otherwise, over as many pages as it takes.
func (c *Client) SessionList(ctx context.Context, l List) (Page[resource.SessionJSON], error) {
	query := url.Values{}
	for name, value := range map[string]string{"status": l.Status, "agent": l.Agent, "q": l.Query, "sort": l.Sort, "cursor": l.Cursor} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for key, value := range l.Metadata {
		query.Set("metadata["+key+"]", value)
	}
	return list[resource.SessionJSON](ctx, c, "/api/sessions", query, l.Limit)
}

// Command is one of those below.
type Command string

// The commands.
const (
	Wake      Command = "wake"
	Hibernate Command = "hibernate"
	Stop      Command = "stop"
	Abort     Command = "abort"
	Recover   Command = "recover"
	Sync      Command = "sync"
	// RestartEnvironment moves a session to a new sandbox; TerminateEnvironment gives its sandbox up.
	RestartEnvironment   Command = "environment/restart"
	TerminateEnvironment Command = "environment/terminate"
)

// Command sends a session a command. Accepted is false if there was nothing to do. Force is for
// Hibernate, RestartEnvironment and TerminateEnvironment.
func (c *Client) Command(ctx context.Context, id string, cmd Command, force bool) (s resource.SessionJSON, accepted bool, err error) {
	body := map[string]bool{}
	if force {
		body["force"] = true
	}
	status, err := c.call(ctx, http.MethodPost, sessionPath(id)+"/"+string(cmd), body, &s)
	return s, status == http.StatusAccepted, err
}

// Purge has everything of a session erased, after it was stopped.
func (c *Client) Purge(ctx context.Context, id string) (s resource.SessionJSON, err error) {
	_, err = c.call(ctx, http.MethodDelete, sessionPath(id)+"?purge=true", nil, &s)
	return s, err
}

// Submit is a prompt for a session.
type Submit struct {
	Content   string `json:"content"`
	ID        string `json:"id,omitempty"`
	Mode      string `json:"mode,omitempty"`      // followup or collect
	OnUnknown string `json:"onUnknown,omitempty"` // hold, retry or fail
	Files     []File `json:"-"`                   // attachments
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

// form is the prompt as a form with its files. The same prompt gives the same bytes.
func (p Submit) form() (form, error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	encoded, err := json.Marshal(p)
	if err == nil {
		err = w.WriteField("prompt", string(encoded))
	}
	for _, f := range p.Files {
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
	Prompt   resource.PromptJSON `json:"prompt"`
	Position int64               `json:"position"` // in the queue
	// Created is false if the same prompt was stored before, by any client: then its events may be
	// anywhere in the log.
	Created bool `json:"-"`
}

// PromptSubmit stores a prompt at the end of the queue.
func (c *Client) PromptSubmit(ctx context.Context, sessionID string, p Submit) (Submitted, error) {
	if p.ID == "" {
		p.ID = session.NewID(session.PromptPrefix) // ours, so that a second try finds the first
	}
	var answer Submitted
	var body any = p
	if len(p.Files) > 0 {
		encoded, err := p.form()
		if err != nil {
			return answer, fmt.Errorf("encode the prompt: %w", err)
		}
		body = encoded
	}
	status, err := c.call(ctx, http.MethodPost, sessionPath(sessionID)+"/prompts", body, &answer)
	answer.Created = status == http.StatusAccepted
	return answer, err
}

// PromptGet shows a prompt.
func (c *Client) PromptGet(ctx context.Context, sessionID, promptID string) (resource.PromptJSON, error) {
	var p resource.PromptJSON
	_, err := c.call(ctx, http.MethodGet, sessionPath(sessionID)+"/prompts/"+url.PathEscape(promptID), nil, &p)
	return p, err
}

// Blocks returns the conversation, all pages of it. Follow after its Seq continues from there.
func (c *Client) Blocks(ctx context.Context, sessionID string) (conversation.Conversation, error) {
	var whole conversation.Conversation
	places := map[string]int{}
	for cursor := ""; ; {
		var page struct {
			conversation.Conversation
			NextCursor string `json:"nextCursor"`
		}
		path := sessionPath(sessionID) + "/blocks"
		if cursor != "" {
			path += "?cursor=" + url.QueryEscape(cursor)
		}
		if _, err := c.call(ctx, http.MethodGet, path, nil, &page); err != nil {
			return conversation.Conversation{}, err
		}
		whole.Seq = page.Seq
		for _, thread := range page.Threads {
			at, known := places[thread.ID]
			if !known {
				places[thread.ID] = len(whole.Threads)
				whole.Threads = append(whole.Threads, thread)
				continue
			}
			whole.Threads[at].Blocks = append(whole.Threads[at].Blocks, thread.Blocks...)
		}
		if page.NextCursor == "" || page.NextCursor == cursor {
			return whole, nil
		}
		cursor = page.NextCursor
	}
}

func sessionPath(id string) string { return "/api/sessions/" + url.PathEscape(id) }

// call sends a request until it is answered, and reads the answer into out: JSON, or into a *[]byte
// whatever it is.
func (c *Client) call(ctx context.Context, method, path string, body, out any, header ...string) (status int, err error) {
	var data []byte
	if f, ok := body.(form); ok {
		data, header = f.data, append(header, "Content-Type", f.contentType)
	} else if body != nil {
		if data, err = json.Marshal(body); err != nil {
			return 0, fmt.Errorf("encode request: %w", err)
		}
	}
	pauses := attemptPauses()
	for {
		status, err = c.once(ctx, method, path, data, out, header)
		again, after := retriable(err)
		pause, last := pauses.Next()
		if !again || last || ctx.Err() != nil {
			return status, err
		}
		if after > 0 {
			pause = min(after, maxRetryWait)
		}
		if !sleep(ctx, pause) {
			return status, err
		}
	}
}

// attemptPauses are those between the attempts of one call.
func attemptPauses() retry.Backoff {
	return retry.WithMaxRetries(attempts-1, backoff.New(firstWait, maxRetryWait))
}

// retriable reports whether the call may succeed when it is made again, and when
// the server says that it should be.
func retriable(err error) (bool, time.Duration) {
	if err == nil {
		return false, 0
	}
	if problem, ok := errors.AsType[*Error](err); ok {
		return problem.Status == http.StatusServiceUnavailable || problem.Status == http.StatusTooManyRequests, problem.RetryAfter
	}
	_, reached := errors.AsType[*url.Error](err)
	return reached, 0
}

// sleep waits and reports whether ctx let it.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *Client) once(ctx context.Context, method, path string, body []byte, out any, header []string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+time.Duration(len(body)>>20)*time.Second)
	defer cancel()
	req, err := c.request(ctx, method, path, body)
	if err != nil {
		return 0, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return resp.StatusCode, readError(resp)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return resp.StatusCode, fmt.Errorf("read answer: %w", err)
	}
	if raw, ok := out.(*[]byte); ok {
		*raw = data
		return resp.StatusCode, nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return resp.StatusCode, fmt.Errorf("%s does not answer like overwinter: %w", c.base, err)
	}
	return resp.StatusCode, nil
}

func (c *Client) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, reader)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	return req, nil
}

// readError makes an Error of an answer, also of one that is not overwinter's.
func readError(resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	e := &Error{}
	if err != nil || json.Unmarshal(data, e) != nil || e.Code == "" {
		e = &Error{Code: failure.Internal, Detail: "the server answers " + resp.Status}
	}
	e.Status = resp.StatusCode
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}
