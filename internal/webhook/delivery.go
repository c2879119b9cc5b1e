package webhook

import (
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/resource"
)

// TypeTest is the type of a delivery that a client requested to test an endpoint.
const TypeTest lifecycle.Type = "webhook.test"

// Status is the state of a delivery.
type Status string

// The states of a delivery.
const (
	Pending   Status = "pending"
	Delivered Status = "delivered"
	Failed    Status = "failed"
)

// Delivery is the delivery of one event to one endpoint.
type Delivery struct {
	ID         string
	EndpointID string
	SessionID  string // empty for a test
	Type       lifecycle.Type
	Position   int64 // position of the event; 0 for a test
	Status     Status
	Reason     string // why it failed
	Attempts   []Attempt
	Tries      int       // attempts so far
	NextAt     time.Time // time of the next attempt; zero if there is none
	CreatedAt  time.Time
	EndedAt    time.Time
}

// Attempt is one request of a delivery.
type Attempt struct {
	No       int
	At       time.Time
	Duration time.Duration
	Code     int    // status code of the response; 0 if there was none
	Error    string // why there was no valid response; empty after a success
}

// Reasons of deliveries that failed.
const (
	ReasonExhausted     = "attempts_exhausted"
	ReasonDisabled      = "endpoint_disabled"
	ReasonEventNotKept  = "event_not_kept"
	ReasonSecretUnknown = "secret_unreadable" //nolint:gosec // not a credential
)

// Schedule is the pause before each attempt after the first, as recommended by Standard Webhooks:
// the last attempt is three days after the first.
var Schedule = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// pause returns the pause before the next attempt; false if there is none. A fifth of it is random,
// so that deliveries that failed together are not retried together. A receiver may request a longer
// pause, up to the longest one of the schedule.
func pause(attempts int, asked time.Duration) (time.Duration, bool) {
	if attempts < 1 || attempts > len(Schedule) {
		return 0, false
	}
	d := Schedule[attempts-1]
	d += time.Duration(rand.Float64() * 0.2 * float64(d)) //nolint:gosec // not a secret
	return max(d, min(asked, Schedule[len(Schedule)-1])), true
}

// Message is the body of a delivery, in the format of Standard Webhooks.
type Message struct {
	Type      lifecycle.Type `json:"type"`
	Timestamp resource.Time  `json:"timestamp"` // time of the event
	Data      MessageData    `json:"data"`
}

// MessageData is the data of a message.
type MessageData struct {
	// Position is the position of the event in GET /api/events.
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

// MessageOf returns the message of an event.
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

// Verdict is the decision after an attempt.
type Verdict struct {
	Status Status
	Reason string        // of Failed
	Pause  time.Duration // of Pending
	// Disable is why the endpoint must be disabled; empty if it must not.
	Disable string
}

// Judge decides how to continue after an attempt, given the number of earlier attempts.
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
