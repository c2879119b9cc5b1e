package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/google/uuid"
)

// Status is the state of a session.
type Status string

// The states. Prompts are accepted in all but StatusTerminated.
const (
	StatusInitializing Status = "initializing" // it has no sandbox yet
	StatusRunning      Status = "running"
	StatusHibernating  Status = "hibernating"
	StatusHibernated   Status = "hibernated" // it uses no compute, and wakes with the next prompt
	StatusRestoring    Status = "restoring"
	StatusTerminated   Status = "terminated" // it is over
	StatusError        Status = "error"      // a person must recover or stop it
)

// Session is a session.
type Session struct {
	ID           string     `json:"id"`
	Status       Status     `json:"status"`
	StatusReason string     `json:"statusReason,omitempty"`
	Agent        string     `json:"agent"`
	Profile      string     `json:"profile,omitempty"`
	Title        string     `json:"title,omitempty"`
	Workspace    *Workspace `json:"workspace,omitempty"`
	ParentID     string     `json:"parentId,omitempty"`
	ForkedFrom   *ForkPoint `json:"forkedFrom,omitempty"`
	CreatedAt    Time       `json:"createdAt"`
	LastActivity Time       `json:"lastActivityAt"`
	IdleTimeout  Duration   `json:"idleTimeout"`
	// IdleTimeoutSeconds is IdleTimeout as a number.
	IdleTimeoutSeconds float64 `json:"idleTimeoutSeconds"`
	// SleepsAt is when it hibernates unless something happens first, ExpiresAt when it leaves its sandbox because of the
	// provider's limit, NextCheckpointAt when it is saved next.
	SleepsAt         *Time           `json:"sleepsAt"`
	ExpiresAt        *Time           `json:"expiresAt"`
	NextCheckpointAt *Time           `json:"nextCheckpointAt"`
	Metadata         json.RawMessage `json:"metadata"` // a JSON object
	Options          Options         `json:"options"`
	Generation       int64           `json:"generation"` // rises with every sandbox
	Receipt          *Receipt        `json:"receipt,omitempty"`
	// Head is the bundle that it wakes from, HeadSuccess the newest one that does not end with a turn that failed.
	Head        string         `json:"head,omitempty"`
	HeadSuccess string         `json:"headSuccess,omitempty"`
	Metrics     Metrics        `json:"metrics"`
	Queue       Queue          `json:"queue"`
	Doing       Activity       `json:"doing"`
	Questions   QuestionCounts `json:"questions"`
	// PendingCommands were accepted and have not ended, oldest first.
	PendingCommands []Command `json:"pendingCommands"`
	Runtime         Runtime   `json:"runtime"`
	Purge           *Purge    `json:"purge,omitempty"`
	// Warnings are in the response to the creation only.
	Warnings []Warning `json:"warnings,omitempty"`
}

// Workspace is the initial content of the working directory of a session.
type Workspace struct {
	RepoURL string `json:"repoUrl,omitempty"`
	Ref     string `json:"ref,omitempty"`
	Setup   string `json:"setup,omitempty"` // a script
}

// Options are the choices of a session that its agent reads.
type Options struct {
	Model string `json:"model,omitempty"`
	// Permissions is the default policy for calls of tools. A profile may have exceptions.
	Permissions Policy `json:"permissions,omitempty"`
	// QuestionTimeout is how long a question waits for its answer.
	QuestionTimeout Duration `json:"questionTimeout,omitzero"`
	// Checkpoint says when a bundle is saved while the session is awake: hibernate (not at all), turn, or a duration; empty
	// for the installation's policy.
	Checkpoint string `json:"checkpoint,omitempty"`
}

// Policy decides about calls of tools.
type Policy string

// The policies; the default is PolicyAllow.
const (
	PolicyAllow Policy = "allow"
	PolicyAsk   Policy = "ask"
	PolicyDeny  Policy = "deny"
)

// Receipt is the account of a restore. Missing is [] if everything is there.
type Receipt struct {
	Kind      string   `json:"kind"` // full, partial, fresh or unverified
	Missing   []string `json:"missing"`
	Unchecked []string `json:"unchecked,omitempty"` // what was not compared
	Moved     string   `json:"moved,omitempty"`     // where the session was before it was imported
	// HandedFrom is the agent whose memory is missing, as the session was forked with another one.
	HandedFrom string `json:"handedFrom,omitempty"`
}

// Metrics are counted per session. ActiveSeconds is the time with a sandbox.
type Metrics struct {
	ActiveSeconds float64  `json:"activeSeconds"`
	Messages      int64    `json:"messages"`
	ToolCalls     int64    `json:"toolCalls"`
	InputTokens   int64    `json:"inputTokens"`
	OutputTokens  int64    `json:"outputTokens"`
	CostUSD       *float64 `json:"costUsd"` // nil if it is not known
}

// Queue counts the prompts of a session that are not over, or need a person, and says whether the queue is held.
type Queue struct {
	Queued     int64 `json:"queued"`
	Processing int64 `json:"processing"`
	Unknown    int64 `json:"unknown"`
	Hold
}

// Hold says whether a queue is held: no prompt starts until it is released.
type Hold struct {
	Held       bool   `json:"held"`
	HeldSince  *Time  `json:"heldSince,omitempty"`
	HeldReason string `json:"heldReason,omitempty"`
}

// Activity is the current activity of a session. State is not_started, starting, working,
// waiting_for_answer, idle, hibernating, hibernated, error or terminated; Text is a line for
// people.
type Activity struct {
	State string `json:"state"`
	Step  string `json:"step,omitempty"`
	Text  string `json:"text"`
	Until *Time  `json:"until,omitempty"` // when it tries again, for the step `wait`
}

// QuestionCounts are the questions of a session.
type QuestionCounts struct {
	Open int64 `json:"open"`
}

// Runtime says what of a session is alive.
type Runtime struct {
	IsLoaded bool     `json:"isLoaded"` // its workflow is open
	Sandbox  *Sandbox `json:"sandbox"`  // nil if there is none
}

// Sandbox is the sandbox of a session.
type Sandbox struct {
	SandboxID       string `json:"sandboxId"`
	Status          string `json:"status"` // starting, ready, unhealthy or terminated
	RestartCount    int64  `json:"restartCount"`
	LastHealthCheck Time   `json:"lastHealthCheck"`
}

// Purge is the erasure of a session.
type Purge struct {
	State       string `json:"state"` // stopping, erasing, checking or erased
	RequestedAt Time   `json:"requestedAt"`
}

// Warning is something that keeps a request which succeeded from having its effect.
type Warning struct {
	Code   string `json:"code"`
	Field  string `json:"field"` // of the request
	Detail string `json:"detail"`
}

// Create says what session to create.
type Create struct {
	Agent       string         `json:"agent"`
	Title       string         `json:"title,omitempty"`
	Profile     string         `json:"profile,omitempty"` // ID or name, @VERSION for one that is not the newest
	Workspace   *Workspace     `json:"workspace,omitempty"`
	Prompt      *FirstPrompt   `json:"prompt,omitempty"`
	Sandbox     string         `json:"sandbox,omitempty"` // lazy or eager
	IdleTimeout string         `json:"idleTimeout,omitempty"`
	Metadata    map[string]any `json:"metadata,omitempty"`
	Options     *Options       `json:"options,omitempty"`
}

// FirstPrompt is the prompt that a session begins with.
type FirstPrompt struct {
	Content string `json:"content"`
	ID      string `json:"id,omitempty"`
	Files   []File `json:"-"` // attachments
}

// SessionCreate creates a session. The same key and session again within 24 hours return the first one; an empty key is
// a new one.
func (c *Client) SessionCreate(ctx context.Context, create Create, key string) (s Session, err error) {
	if key == "" {
		key = uuid.NewString()
	}
	var body any = create
	if create.Prompt != nil && len(create.Prompt.Files) > 0 {
		if body, err = formWith("session", create, create.Prompt.Files); err != nil {
			return s, fmt.Errorf("encode the session: %w", err)
		}
	}
	_, err = c.call(ctx, http.MethodPost, "/api/sessions", body, &s, "Idempotency-Key", key)
	return s, err
}

// SessionGet returns a session.
func (c *Client) SessionGet(ctx context.Context, id string) (s Session, err error) {
	_, err = c.call(ctx, http.MethodGet, sessionPath(id), nil, &s)
	return s, err
}

// SessionPatch changes the fields of body, as PATCH takes them.
func (c *Client) SessionPatch(ctx context.Context, id string, body map[string]any) (s Session, err error) {
	_, err = c.call(ctx, http.MethodPatch, sessionPath(id), body, &s)
	return s, err
}

// List selects sessions; the zero value all.
type List struct {
	Status, Agent, Query, Sort string
	Cursor                     string            // NextCursor of an earlier list
	Metadata                   map[string]string // members that the metadata must have
	Limit                      int               // at most this many; 0 for all
}

// SessionList returns sessions, newest first unless they are sorted otherwise, over as many pages as it takes.
func (c *Client) SessionList(ctx context.Context, l List) (Page[Session], error) {
	query := url.Values{}
	for name, value := range map[string]string{"status": l.Status, "agent": l.Agent, "q": l.Query, "sort": l.Sort, "cursor": l.Cursor} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for key, value := range l.Metadata {
		query.Set("metadata["+key+"]", value)
	}
	return list[Session](ctx, c, "/api/sessions", query, l.Limit)
}

// SessionURL is the address of a session in the API.
func (c *Client) SessionURL(id string) string { return c.base.String() + sessionPath(id) }

// ForksPolicy decides how a purge handles the forks of a session: nothing ("", which is refused if
// there are any), "detach" or "purge".
type ForksPolicy string

// Purge has everything of a session erased, after it was stopped.
func (c *Client) Purge(ctx context.Context, id string, forks ForksPolicy) (s Session, err error) {
	query := "?purge=true"
	if forks != "" {
		query += "&forks=" + url.QueryEscape(string(forks))
	}
	_, err = c.call(ctx, http.MethodDelete, sessionPath(id)+query, nil, &s)
	return s, err
}

func sessionPath(id string) string { return "/api/sessions/" + url.PathEscape(id) }

// StreamToken lets a browser read the streams of one session for a while, with the query parameter token.
type StreamToken struct {
	SessionID string `json:"sessionId"`
	Token     string `json:"token"`
	ExpiresAt Time   `json:"expiresAt"`
}

// StreamTokenCreate creates a token for the streams of a session.
func (c *Client) StreamTokenCreate(ctx context.Context, sessionID string) (t StreamToken, err error) {
	_, err = c.call(ctx, http.MethodPost, sessionPath(sessionID)+"/stream-tokens", nil, &t)
	return t, err
}
