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
	SessionTitleEvent      = "session.title"     // it has another title
	SessionIdleEvent       = "session.idle"      // no prompt waits or runs after one has ended
	SessionCompletedEvent  = "session.completed" // it is terminated

	PromptCompletedEvent = "prompt.completed"
	PromptFailedEvent    = "prompt.failed"
	PromptCancelledEvent = "prompt.cancelled"
	PromptUnknownEvent   = "prompt.unknown"

	QuestionAskedEvent    = "question.asked"
	QuestionResolvedEvent = "question.resolved"
)

// LifecycleEvent is something that happened to one of all sessions. The marker MarkerCaughtUp has Type and Position alone.
type LifecycleEvent struct {
	// Position is where FollowAll continues.
	Position int64  `json:"position"`
	Type     string `json:"type"`
	At       Time   `json:"at"`
	// Session is the present state of the session.
	Session struct {
		ID       string          `json:"id"`
		Agent    string          `json:"agent"`
		Title    string          `json:"title"`
		Status   Status          `json:"status"`
		Metadata json.RawMessage `json:"metadata"`
	} `json:"session"`
	// Seq is the position of the event in the session's log, and Data its data there; 0 and nil if there is none.
	Seq  int64           `json:"seq,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Marker reports whether the event is a marker.
func (e LifecycleEvent) Marker() bool { return e.Session.ID == "" }

// LifecycleFilter selects lifecycle events; the zero value all.
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

// FollowAll yields what happens to all sessions after a position, in the order that every reader sees and each once, until the server
// refuses or ctx is done. The position is that of an event, Latest or Oldest. It reconnects if an established connection breaks;
// MarkerCaughtUp is yielded once. An error is the last thing yielded.
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
				return false, nil // the position moves past events that the filter leaves out
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
