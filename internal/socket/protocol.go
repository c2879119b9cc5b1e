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

// Protocol is how a session is described over a WebSocket. Each has its own messages of the session; those about the connection
// (caught_up, gap, end, ack, error, pong, diff) are the same in all.
type Protocol interface {
	// Init returns the first message; nil is none.
	Init(o Opening) any
	// Page returns the message with a further part of the conversation.
	Page(sessionID string, c conversation.Conversation, more bool) any
	// Question returns the message of a question that was open when the connection was opened, given as JSON.
	Question(sessionID string, q json.RawMessage) any
	// Presence returns the messages about users who have come or gone.
	Presence(before, now presence.Presence) []any
	// Beat returns the message after a time without events, in addition to a ping frame; nil is none.
	Beat() any
	// Messages returns the messages of an event, given as the JSON of server-sent events: the last one has its seq, and others have
	// none.
	Messages(line []byte) ([][]byte, error)
}

// Opening is what a connection begins with.
type Opening struct {
	Seq     int64 // the position after which events follow
	Session resource.SessionJSON
	// History is the first part of the conversation; nil for a client that has come back with its position.
	History *conversation.Conversation
	More    bool // further parts follow
	Data    InitData
}

// Choose returns the first of the sub-protocols that a client offers that there is; an empty name is none.
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

// ByName returns the protocol of a sub-protocol's name; [Chat] is the one without a name.
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
