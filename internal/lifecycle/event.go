package lifecycle

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// Type is the type of an event.
type Type string

// The types.
const (
	SessionCreated    Type = "session.created"
	SessionRunning    Type = "session.running"    // it has a sandbox
	SessionHibernated Type = "session.hibernated" // it has none, and wakes with the next prompt
	SessionRestoring  Type = "session.restoring"
	SessionError      Type = "session.error" // it needs an intervention
	SessionTitle      Type = "session.title" // its title has changed
	// SessionIdle: a prompt has ended and no other waits or runs. It is detected after the end, and
	// omitted if another prompt has arrived in the meantime.
	SessionIdle Type = "session.idle"
	// SessionCompleted: it is terminated, and no event will follow.
	SessionCompleted Type = "session.completed"

	PromptCompleted Type = "prompt.completed"
	PromptFailed    Type = "prompt.failed"
	PromptCancelled Type = "prompt.cancelled"
	PromptUnknown   Type = "prompt.unknown"

	QuestionAsked    Type = "question.asked"
	QuestionResolved Type = "question.resolved"
)

// Types lists every type.
var Types = []Type{
	SessionCreated, SessionRunning, SessionHibernated, SessionRestoring, SessionError, SessionTitle, SessionIdle, SessionCompleted,
	PromptCompleted, PromptFailed, PromptCancelled, PromptUnknown, QuestionAsked, QuestionResolved,
}

// Valid reports whether t is one of Types.
func (t Type) Valid() bool { return slices.Contains(Types, t) }

// Retention is how long events are kept.
const Retention = 7 * 24 * time.Hour

// Event is one event. Positions are unique and ascending; numbers may be skipped.
type Event struct {
	Position int64
	Type     Type
	At       time.Time
	// Session is the current state of the session. There are no events of a session that is being
	// purged.
	Session Subject
	// Seq is the position of the event in the session's log, and Data its data there; 0 and nil if
	// there is no such event or it was deleted.
	Seq  int64
	Data json.RawMessage
}

// Subject has the attributes of an event's session.
type Subject struct {
	ID       string
	Agent    string
	Title    string
	Status   session.State
	Metadata json.RawMessage
}

// Page has consecutive events.
type Page struct {
	Events []Event
	// Position is the start of the next page, even if a filter has omitted all events.
	Position int64
	// CaughtUp reports that there were no further events.
	CaughtUp bool
}
