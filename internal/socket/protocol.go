package socket

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/presence"
	"github.com/overwinter-dev/overwinter/internal/resource"
)

// Protocol is a description of a session over a WebSocket. Each protocol has its own messages about
// the session; those about the connection (caught_up, gap, end, ack, error, pong, diff) are the
// same in all.
type Protocol interface {
	// Init returns the first message, or nil.
	Init(o Opening) any
	// Page returns the message with a further part of the conversation.
	Page(sessionID string, c conversation.Conversation, more bool) any
	// Question returns the message about a question, given as JSON, that was open when the
	// connection was opened.
	Question(sessionID string, q json.RawMessage) any
	// Presence returns the messages about users who have joined or left.
	Presence(before, now presence.Presence) []any
	// Beat returns the message after a time without events, in addition to a ping frame, or nil.
	Beat() any
	// Messages returns the messages of an event, given as the JSON of server-sent events: the last
	// one has the event's seq, and others have none.
	Messages(line []byte) ([][]byte, error)
}

// Opening is the state at the beginning of a connection.
type Opening struct {
	Seq     int64 // the position after which events follow
	Session resource.SessionJSON
	// History is the first part of the conversation; nil for a client that resumes at its position.
	History *conversation.Conversation
	More    bool // further parts follow
	Data    InitData
}

// Choose returns the first supported sub-protocol that a client offers, or "".
func Choose(offered []string) string {
	for _, header := range offered {
		for name := range strings.SplitSeq(header, ",") {
			if name = strings.TrimSpace(name); name == BlocksName || name == EventsName {
				return name
			}
		}
	}
	return ""
}

// ByName returns the protocol with a sub-protocol's name; [Chat] has the empty name.
func ByName(name string) Protocol {
	switch name {
	case BlocksName:
		return Blocks{}
	case EventsName:
		return Events{}
	}
	return Chat{}
}

// decode reads an event.
func decode(line []byte) (eventlog.Event, error) {
	var e eventlog.Event
	if err := json.Unmarshal(line, &e); err != nil {
		return e, fmt.Errorf("decode event: %w", err)
	}
	return e, nil
}
