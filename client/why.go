package client

import (
	"context"
	"net/http"
	"net/url"
)

// Subject is what [Client.Why] explains.
type Subject string

// The subjects.
const (
	SubjectSession    Subject = "session" // its present state
	SubjectTransition Subject = "transition"
	SubjectPrompt     Subject = "prompt"
	SubjectReceipt    Subject = "receipt"
	SubjectQuestion   Subject = "question"
)

// Explanation is the chain of causes of a state.
type Explanation struct {
	SessionID string  `json:"sessionId"`
	Of        Subject `json:"of"`
	// ID of the prompt or question, or the number of the transition, also of a receipt's; empty for the session.
	ID      string `json:"id,omitempty"`
	At      Time   `json:"at"`
	Code    string `json:"code"` // of the first cause that says why
	Summary string `json:"summary"`
	// Causes begin with what was asked about; each one was caused by those after it.
	Causes []Cause `json:"causes"`
	// Disagreements are where Postgres and Temporal say different things.
	Disagreements []Disagreement      `json:"disagreements"`
	Temporal      ExplanationTemporal `json:"temporal"`
	// Truncated: older causes were not read, or are left out.
	Truncated bool `json:"truncated,omitempty"`
}

// Cause is one link of the chain.
type Cause struct {
	Code   string          `json:"code"`
	At     *Time           `json:"at,omitempty"`
	Text   string          `json:"text"`
	Source string          `json:"source"` // rows or temporal
	About  *CauseReference `json:"about,omitempty"`
	// Times is how often it happened in a row, if that was more than once.
	Times int `json:"times,omitempty"`
}

// CauseReference names the subject of a cause.
type CauseReference struct {
	Type string `json:"type"` // session, transition, prompt, run, command, sandbox, bundle or question
	ID   string `json:"id"`
}

// Disagreement is something that Postgres and Temporal know differently.
type Disagreement struct {
	Code     string `json:"code"`
	Text     string `json:"text"`
	Rows     string `json:"rows"`
	Temporal string `json:"temporal"`
}

// ExplanationTemporal reports how much of the history of the session's workflow was read.
type ExplanationTemporal struct {
	Available    bool   `json:"available"`
	Reason       string `json:"reason,omitempty"` // that it was not read
	WorkflowOpen bool   `json:"workflowOpen"`
	Events       int    `json:"events"`
	Truncated    bool   `json:"truncated,omitempty"`
}

// Why explains a subject of a session. The id is that of the prompt or question, or the number of the transition; empty for the
// newest, or the one at work.
func (c *Client) Why(ctx context.Context, sessionID string, of Subject, id string) (e Explanation, err error) {
	path := sessionPath(sessionID) + "/why"
	if of != SubjectSession && of != "" {
		query := url.Values{"of": {string(of)}}
		if id != "" {
			query.Set("id", id)
		}
		path += "?" + query.Encode()
	}
	_, err = c.call(ctx, http.MethodGet, path, nil, &e)
	return e, err
}
