package client

import (
	"context"
	"net/http"
	"net/url"
)

// Subject is the subject of an explanation by [Client.Why].
type Subject string

// The subjects.
const (
	SubjectSession    Subject = "session" // the current state of the session
	SubjectTransition Subject = "transition"
	SubjectPrompt     Subject = "prompt"
	SubjectReceipt    Subject = "receipt"
	SubjectQuestion   Subject = "question"
)

// Explanation is the chain of causes of a state.
type Explanation struct {
	SessionID string  `json:"sessionId"`
	Of        Subject `json:"of"`
	// ID is the id of the prompt or question, or the number of the transition, including that of a
	// receipt. It is empty for the session.
	ID      string `json:"id,omitempty"`
	At      Time   `json:"at"`
	Code    string `json:"code"` // code of the first cause that explains the state
	Summary string `json:"summary"`
	// Causes starts with the subject. Each entry was caused by the entries after it.
	Causes []Cause `json:"causes"`
	// Disagreements lists the facts that differ between Postgres and Temporal.
	Disagreements []Disagreement      `json:"disagreements"`
	Temporal      ExplanationTemporal `json:"temporal"`
	// Truncated reports that older causes were not read or are omitted.
	Truncated bool `json:"truncated,omitempty"`
}

// Cause is one link of the chain.
type Cause struct {
	Code   string          `json:"code"`
	At     *Time           `json:"at,omitempty"`
	Text   string          `json:"text"`
	Source string          `json:"source"` // rows or temporal
	About  *CauseReference `json:"about,omitempty"`
	// Times is the number of consecutive occurrences, if there was more than one.
	Times int `json:"times,omitempty"`
}

// CauseReference names the subject of a cause.
type CauseReference struct {
	Type string `json:"type"` // session, transition, prompt, run, command, sandbox, bundle or question
	ID   string `json:"id"`
}

// Disagreement is a fact that differs between Postgres and Temporal.
type Disagreement struct {
	Code     string `json:"code"`
	Text     string `json:"text"`
	Rows     string `json:"rows"`
	Temporal string `json:"temporal"`
}

// ExplanationTemporal reports how much of the history of the session's workflow was read.
type ExplanationTemporal struct {
	Available    bool   `json:"available"`
	Reason       string `json:"reason,omitempty"` // reason why the history was not read
	WorkflowOpen bool   `json:"workflowOpen"`
	Events       int    `json:"events"`
	Truncated    bool   `json:"truncated,omitempty"`
}

// Why explains a subject of a session. The id is that of the prompt or question, or the number of
// the transition. An empty id selects the newest or current one.
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
