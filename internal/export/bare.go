package export

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/event"
)

// BareSession returns a session without its title, metadata and workspace.
func BareSession(s client.Session) client.Session {
	s.Title, s.Metadata, s.Workspace = "", json.RawMessage("{}"), nil
	s.Queue.HeldReason = ""
	return s
}

// BarePrompt returns a prompt without its text, files and notes.
func BarePrompt(p client.Prompt) client.Prompt {
	p.Content, p.Attachments, p.Resolution = "", nil, nil
	return p
}

// Event is an event in a file.
type Event struct {
	Seq   int64           `json:"seq"`
	Type  string          `json:"type"`
	At    time.Time       `json:"at"`
	RunID string          `json:"runId,omitempty"`
	Bytes int             `json:"bytes"` // of its data
	Data  json.RawMessage `json:"data,omitempty"`
}

// plain are the types of events whose data has no content.
var plain = []string{event.TypeStatus, event.TypeTurnStart, event.TypeTurnEnd, event.TypeSetup}

// Bare returns an event without its data, unless the data describes only the state of the session.
func (e Event) Bare() Event {
	if !slices.Contains(plain, e.Type) {
		e.Data = nil
	}
	return e
}
