package lifecycle

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// Type is what happened.
type Type string

// The types.
const (
	SessionCreated    Type = "session.created"
	SessionRunning    Type = "session.running"    // it has a sandbox
	SessionHibernated Type = "session.hibernated" // it has none, and wakes with the next prompt
	SessionRestoring  Type = "session.restoring"
	SessionError      Type = "session.error" // it needs a person
	SessionTitle      Type = "session.title" // it has another title
	// SessionIdle: no prompt waits or runs after one has ended. It is noticed after the end, and left out if another prompt has
	// come meanwhile.
	SessionIdle Type = "session.idle"
	// SessionCompleted: it is terminated, and nothing will follow.
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

// Retention is how long events are kept after they happened.
const Retention = 7 * 24 * time.Hour

// Event is one event. Its position is unique and ascends; numbers may be left out.
type Event struct {
	Position int64
	Type     Type
	At       time.Time
	// Session is the present state of the session. Of one that is being purged there are no events.
	Session Subject
	// Seq is the position of the event in the session's log, and Data its data there; 0 and nil if there is none, or not any more.
	Seq  int64
	Data json.RawMessage
}

// Subject is what an event says of its session.
type Subject struct {
	ID       string
	Agent    string
	Title    string
	Status   session.State
	Metadata json.RawMessage
}

// Page are consecutive events.
type Page struct {
	Events []Event
	// Position is where the next page begins, even if a filter has left out all events.
	Position int64
	// CaughtUp reports that there were no further events.
	CaughtUp bool
}
