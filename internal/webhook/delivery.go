package webhook

import (
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/resource"
)

// TypeTest is the type of a delivery that a call asked for to try an endpoint.
const TypeTest lifecycle.Type = "webhook.test"

// Status is the state of a delivery.
type Status string

// The states of a delivery.
const (
	Pending   Status = "pending"
	Delivered Status = "delivered"
	Failed    Status = "failed"
)

// Delivery is one event on its way to one endpoint.
type Delivery struct {
	ID         string
	EndpointID string
	SessionID  string // empty for a test
	Type       lifecycle.Type
	Position   int64 // of the event; 0 for a test
	Status     Status
	Reason     string // of one that failed
	Attempts   []Attempt
	Tries      int       // attempts so far
	NextAt     time.Time // of the next attempt; zero if there is none
	CreatedAt  time.Time
	EndedAt    time.Time
}

// Attempt is one request of a delivery.
type Attempt struct {
	No       int
	At       time.Time
	Duration time.Duration
	Code     int    // of the answer; 0 if there was none
	Error    string // why there was none, or what is wrong with it; empty after a success
}

// Reasons of deliveries that failed.
const (
	ReasonExhausted     = "attempts_exhausted"
	ReasonDisabled      = "endpoint_disabled"
	ReasonEventNotKept  = "event_not_kept"
	ReasonSecretUnknown = "secret_unreadable" //nolint:gosec // it is not a credential
)

// Schedule is the pause before each attempt after the first, as Standard Webhooks recommends it: the last is three days later.
var Schedule = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// pause is the time before the next attempt after some; false if there is none. A fifth of it is random, so that what failed
// together is not repeated together. A receiver may ask for more, but not for more than the longest pause.
func pause(attempts int, asked time.Duration) (time.Duration, bool) {
	if attempts < 1 || attempts > len(Schedule) {
		return 0, false
	}
	d := Schedule[attempts-1]
	d += time.Duration(rand.Float64() * 0.2 * float64(d)) //nolint:gosec // it is no secret
	return max(d, min(asked, Schedule[len(Schedule)-1])), true
}

// Message is the body of a delivery. Its shape is that of Standard Webhooks.
type Message struct {
	Type      lifecycle.Type `json:"type"`
	Timestamp resource.Time  `json:"timestamp"` // when it happened
	Data      MessageData    `json:"data"`
}

// MessageData is what a message says of an event.
type MessageData struct {
	// Position is that of the event in GET /api/events.
	Position int64           `json:"position,omitempty"`
	Session  *MessageSession `json:"session,omitempty"`
	// Seq is the position of the event in the session's log, and Event its data there.
	Seq   int64           `json:"seq,omitempty"`
	Event json.RawMessage `json:"event,omitempty"`
}

// MessageSession is the session of an event, in its state when the message is sent.
type MessageSession struct {
	ID       string          `json:"id"`
	Agent    string          `json:"agent"`
	Title    string          `json:"title,omitempty"`
	Status   string          `json:"status"`
	Metadata json.RawMessage `json:"metadata"`
}

// MessageOf is the message of an event.
func MessageOf(e lifecycle.Event) Message {
	m := Message{Type: e.Type, Timestamp: resource.Time(e.At), Data: MessageData{Position: e.Position, Seq: e.Seq, Event: e.Data}}
	if e.Session.ID != "" {
		metadata := e.Session.Metadata
		if len(metadata) == 0 {
			metadata = json.RawMessage(`{}`)
		}
		m.Data.Session = &MessageSession{
			ID: e.Session.ID, Agent: e.Session.Agent, Title: e.Session.Title, Status: string(e.Session.Status), Metadata: metadata,
		}
	}
	return m
}

// Verdict is what follows from an attempt.
type Verdict struct {
	Status Status
	Reason string        // of Failed
	Pause  time.Duration // of Pending
	// Disable is why the endpoint is to be disabled; empty if it is not.
	Disable string
}

// Judge decides what follows from the answer to an attempt, after some attempts before it.
func Judge(a Answer, before int) Verdict {
	if a.Error == "" {
		return Verdict{Status: Delivered}
	}
	if a.Gone {
		return Verdict{Status: Failed, Reason: ReasonDisabled, Disable: ReasonGone}
	}
	pause, again := pause(before+1, a.After)
	if !again {
		return Verdict{Status: Failed, Reason: ReasonExhausted}
	}
	return Verdict{Status: Pending, Pause: pause}
}
