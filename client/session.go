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
	StatusInitializing Status = "initializing" // has no sandbox yet
	StatusRunning      Status = "running"
	StatusHibernating  Status = "hibernating"
	StatusHibernated   Status = "hibernated" // uses no compute, and wakes with the next prompt
	StatusRestoring    Status = "restoring"
	StatusTerminated   Status = "terminated" // has ended permanently
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
	// SleepsAt is the time at which the session hibernates if it stays idle, ExpiresAt the time at
	// which it leaves its sandbox because of the provider's limit, and NextCheckpointAt the time at
	// which it is saved next.
	SleepsAt         *Time           `json:"sleepsAt"`
	ExpiresAt        *Time           `json:"expiresAt"`
	NextCheckpointAt *Time           `json:"nextCheckpointAt"`
	Metadata         json.RawMessage `json:"metadata"` // a JSON object
	Options          Options         `json:"options"`
	Generation       int64           `json:"generation"` // incremented with every sandbox
	Receipt          *Receipt        `json:"receipt,omitempty"`
	// Head is the bundle that the session wakes from, and HeadSuccess the newest bundle that does
	// not end with a failed turn.
	Head        string         `json:"head,omitempty"`
	HeadSuccess string         `json:"headSuccess,omitempty"`
	Metrics     Metrics        `json:"metrics"`
	Queue       Queue          `json:"queue"`
	Doing       Activity       `json:"doing"`
	Questions   QuestionCounts `json:"questions"`
	// PendingCommands lists the accepted commands that have not ended, oldest first.
	PendingCommands []Command `json:"pendingCommands"`
	Runtime         Runtime   `json:"runtime"`
	Purge           *Purge    `json:"purge,omitempty"`
	// Warnings is only set in the response to the creation.
	Warnings []Warning `json:"warnings,omitempty"`
}

// Workspace is the initial content of the working directory of a session.
type Workspace struct {
	RepoURL string `json:"repoUrl,omitempty"`
	Ref     string `json:"ref,omitempty"`
	Setup   string `json:"setup,omitempty"` // a script
}

// Options are the settings of a session that its agent reads.
type Options struct {
	Model string `json:"model,omitempty"`
	// Permissions is the default policy for tool calls. A profile may have exceptions.
	Permissions Policy `json:"permissions,omitempty"`
	// QuestionTimeout is how long a question waits for an answer.
	QuestionTimeout Duration `json:"questionTimeout,omitzero"`
	// Checkpoint determines when bundles are saved while the session is awake: hibernate (never),
	// turn, or a duration. Empty means the installation's policy.
	Checkpoint string `json:"checkpoint,omitempty"`
}

// Policy determines whether tool calls are allowed.
type Policy string

// The policies; the default is PolicyAllow.
const (
	PolicyAllow Policy = "allow"
	PolicyAsk   Policy = "ask"
	PolicyDeny  Policy = "deny"
)

// Receipt is the result of a restore. Missing is [] if nothing is missing.
type Receipt struct {
	Kind      string   `json:"kind"` // full, partial, fresh or unverified
	Missing   []string `json:"missing"`
	Unchecked []string `json:"unchecked,omitempty"` // parts that were not compared
	Moved     string   `json:"moved,omitempty"`     // origin of the session before its import
	// HandedFrom is the agent whose memory is missing because the session was forked with another
	// agent.
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

// Queue has the numbers of prompts of a session that have not ended or need a person's decision,
// and the hold of the queue, if any.
type Queue struct {
	Queued     int64 `json:"queued"`
	Processing int64 `json:"processing"`
	Unknown    int64 `json:"unknown"`
	Hold
}

// Hold is the hold of a queue: no prompt starts until it is released.
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
	Until *Time  `json:"until,omitempty"` // time of the next retry, for the step `wait`
}

// QuestionCounts has the numbers of questions of a session.
type QuestionCounts struct {
	Open int64 `json:"open"`
}

// Runtime describes the running parts of a session.
type Runtime struct {
	IsLoaded bool     `json:"isLoaded"` // the workflow is open
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

// Warning is a problem that prevents a successful request from having its effect.
type Warning struct {
	Code   string `json:"code"`
	Field  string `json:"field"` // field of the request
	Detail string `json:"detail"`
}

// Create describes the session to create.
type Create struct {
	Agent       string         `json:"agent"`
	Title       string         `json:"title,omitempty"`
	Profile     string         `json:"profile,omitempty"` // ID or name, with @VERSION for a version that is not the newest
	Workspace   *Workspace     `json:"workspace,omitempty"`
	Prompt      *FirstPrompt   `json:"prompt,omitempty"`
	Sandbox     string         `json:"sandbox,omitempty"` // lazy or eager
	IdleTimeout string         `json:"idleTimeout,omitempty"`
	Metadata    map[string]any `json:"metadata,omitempty"`
	Options     *Options       `json:"options,omitempty"`
}

// FirstPrompt is the first prompt of a new session.
type FirstPrompt struct {
	Content string `json:"content"`
	ID      string `json:"id,omitempty"`
	Files   []File `json:"-"` // attachments
}

// SessionCreate creates a session. A repeated call with the same key and session within 24 hours
// returns the first session. If key is empty, a new key is generated.
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

// SessionPatch changes the fields in body, which is the body of the PATCH request.
func (c *Client) SessionPatch(ctx context.Context, id string, body map[string]any) (s Session, err error) {
	_, err = c.call(ctx, http.MethodPatch, sessionPath(id), body, &s)
	return s, err
}

// List selects sessions. The zero value selects all sessions.
type List struct {
	Status, Agent, Query, Sort string
	Cursor                     string            // NextCursor of an earlier list
	Metadata                   map[string]string // members that the metadata must have
	Limit                      int               // at most this many; 0 for all
}

// SessionList returns sessions, newest first by default. It reads all pages.
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

// ForksPolicy determines how a purge handles the forks of a session: "detach", "purge", or "", with
// which the purge is refused if there are forks.
type ForksPolicy string

// Purge stops a session and erases all its data.
func (c *Client) Purge(ctx context.Context, id string, forks ForksPolicy) (s Session, err error) {
	query := "?purge=true"
	if forks != "" {
		query += "&forks=" + url.QueryEscape(string(forks))
	}
	_, err = c.call(ctx, http.MethodDelete, sessionPath(id)+query, nil, &s)
	return s, err
}

func sessionPath(id string) string { return "/api/sessions/" + url.PathEscape(id) }

// StreamToken lets a browser read the streams of one session for a limited time, with the query
// parameter token.
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
