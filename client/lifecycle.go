package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"
	"strconv"
	"strings"
)

// The types of lifecycle events.
const (
	SessionCreatedEvent    = "session.created"
	SessionRunningEvent    = "session.running"
	SessionHibernatedEvent = "session.hibernated"
	SessionRestoringEvent  = "session.restoring"
	SessionErrorEvent      = "session.error"
	SessionTitleEvent      = "session.title"     // the title has changed
	SessionIdleEvent       = "session.idle"      // a prompt has ended, and no other prompt waits or runs
	SessionCompletedEvent  = "session.completed" // the session is terminated

	PromptCompletedEvent = "prompt.completed"
	PromptFailedEvent    = "prompt.failed"
	PromptCancelledEvent = "prompt.cancelled"
	PromptUnknownEvent   = "prompt.unknown"

	QuestionAskedEvent    = "question.asked"
	QuestionResolvedEvent = "question.resolved"
)

// LifecycleEvent is a lifecycle event of any session. The marker MarkerCaughtUp has only Type and
// Position.
type LifecycleEvent struct {
	// Position is the position from which FollowAll can continue.
	Position int64  `json:"position"`
	Type     string `json:"type"`
	At       Time   `json:"at"`
	// Session is the current state of the session.
	Session struct {
		ID       string          `json:"id"`
		Agent    string          `json:"agent"`
		Title    string          `json:"title"`
		Status   Status          `json:"status"`
		Metadata json.RawMessage `json:"metadata"`
	} `json:"session"`
	// Seq is the position of the corresponding event in the session's log, and Data the data of
	// that event; 0 and nil if there is no such event.
	Seq  int64           `json:"seq,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Marker reports whether the event is a marker.
func (e LifecycleEvent) Marker() bool { return e.Session.ID == "" }

// LifecycleFilter selects lifecycle events. The zero value selects all events.
type LifecycleFilter struct {
	Types            []string
	SessionID, Agent string
	Metadata         map[string]string // members that the session's metadata must have
}

func (f LifecycleFilter) query() string {
	query := url.Values{}
	if len(f.Types) > 0 {
		query.Set("type", strings.Join(f.Types, ","))
	}
	if f.SessionID != "" {
		query.Set("sessionId", f.SessionID)
	}
	if f.Agent != "" {
		query.Set("agent", f.Agent)
	}
	for key, value := range f.Metadata {
		query.Set("metadata["+key+"]", value)
	}
	return query.Encode()
}

// FollowAll yields the lifecycle events of all sessions that follow a position, each once and in
// the same order for every reader, until the server returns an error or ctx is done. The position
// is that of an event, Latest or Oldest. FollowAll reconnects if an established connection breaks.
// It yields MarkerCaughtUp once. An error is yielded last.
func (c *Client) FollowAll(ctx context.Context, after int64, filter LifecycleFilter) iter.Seq2[LifecycleEvent, error] {
	return func(yield func(LifecycleEvent, error) bool) {
		s := &source{client: c, path: "/api/events", query: filter.query(), position: after}
		caughtUp := false
		s.take = func(m message) (bool, error) {
			if m.id != "" {
				position, err := strconv.ParseInt(m.id, 10, 64)
				if err != nil {
					return false, fmt.Errorf("read position: %w", err)
				}
				if m.event != MarkerCaughtUp && m.data != "" && position <= s.position {
					return false, nil
				}
				s.position = max(s.position, position)
			}
			if m.data == "" {
				return false, nil // the position moves past events that the filter excludes
			}
			var e LifecycleEvent
			if err := json.Unmarshal([]byte(m.data), &e); err != nil {
				return false, fmt.Errorf("read event: %w", err)
			}
			if m.event == MarkerCaughtUp {
				e.Type = MarkerCaughtUp
				s.position = max(s.position, e.Position)
				if caughtUp {
					return false, nil
				}
				caughtUp = true
			}
			return !yield(e, nil), nil
		}
		if err := s.run(ctx); err != nil {
			yield(LifecycleEvent{}, err)
		}
	}
}
