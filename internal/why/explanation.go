package why

import (
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/resource"
)

// Subject is the subject of an explanation.
type Subject string

// The subjects. Session explains the current state of a session.
const (
	Session    Subject = "session"
	Transition Subject = "transition"
	Prompt     Subject = "prompt"
	Receipt    Subject = "receipt"
	Question   Subject = "question"
)

// Subjects lists the subjects that a request may name.
var Subjects = []Subject{Transition, Prompt, Receipt, Question}

// Source is the source of a cause.
type Source string

// The sources.
const (
	Rows     Source = "rows"
	Temporal Source = "temporal"
)

// Explanation is the chain of causes of a state.
type Explanation struct {
	SessionID string  `json:"sessionId"`
	Of        Subject `json:"of"`
	// ID of the prompt or question, or the number of the transition, also of a receipt's; empty for the session.
	ID      string        `json:"id,omitempty"`
	At      resource.Time `json:"at"` // time of the explanation
	Code    Code          `json:"code"`
	Summary string        `json:"summary"`
	// Causes begins with the subject; each one was caused by those after it.
	Causes []Cause `json:"causes"`
	// Disagreements lists the differences between Postgres and Temporal.
	Disagreements []Disagreement `json:"disagreements"`
	Temporal      Engine         `json:"temporal"`
	// Truncated: not everything was read, so the chain may be incomplete.
	Truncated bool `json:"truncated,omitempty"`
}

// Cause is one link of the chain.
type Cause struct {
	Code   Code           `json:"code"`
	At     *resource.Time `json:"at,omitempty"`
	Text   string         `json:"text"`
	Source Source         `json:"source"`
	// About names the row of the cause.
	About *Reference `json:"about,omitempty"`
	// Times is how often it happened consecutively, if more than once.
	Times int `json:"times,omitempty"`
}

// Reference names a row.
type Reference struct {
	Type string `json:"type"` // session, transition, prompt, run, command, sandbox, bundle, question
	ID   string `json:"id"`
}

// Disagreement is a value that differs between Postgres and Temporal.
type Disagreement struct {
	Code     Code   `json:"code"`
	Text     string `json:"text"`
	Rows     string `json:"rows"`
	Temporal string `json:"temporal"`
}

// Engine describes the part of the workflow's history that was read.
type Engine struct {
	Available bool `json:"available"`
	// Reason why it was not read; empty if it was.
	Reason string `json:"reason,omitempty"`
	// WorkflowOpen: the workflow of the session is open.
	WorkflowOpen bool `json:"workflowOpen"`
	Events       int  `json:"events"`
	// Truncated: older events were not read.
	Truncated bool `json:"truncated,omitempty"`
}

// Map returns a copy with mapped texts.
func (e Explanation) Map(text func(string) string) Explanation {
	e.Summary, e.Temporal.Reason = text(e.Summary), text(e.Temporal.Reason)
	causes := make([]Cause, len(e.Causes))
	for i, c := range e.Causes {
		c.Text = text(c.Text)
		causes[i] = c
	}
	e.Causes = causes
	disagreements := make([]Disagreement, len(e.Disagreements))
	for i, d := range e.Disagreements {
		d.Text, d.Rows, d.Temporal = text(d.Text), text(d.Rows), text(d.Temporal)
		disagreements[i] = d
	}
	e.Disagreements = disagreements
	return e
}

// maxQuoted bounds the quoted part of a reason or an error, in runes.
const maxQuoted = 300

// quoted returns the beginning of a text on one line.
func quoted(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
	if r := []rune(s); len(r) > maxQuoted {
		return string(r[:maxQuoted]) + "…"
	}
	return s
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }
