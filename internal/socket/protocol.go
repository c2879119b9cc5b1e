package socket

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Protocol is how a session is described over a WebSocket. Each has its own messages of the session; those about the connection
// (caught_up, gap, end, ack, error, pong, diff) are the same in all.
type Protocol interface {
	// Init returns the first message.
	Init(o Opening) any
	// Page returns the message with a further part of the conversation.
	Page(sessionID string, c conversation.Conversation, more bool) any
	// Question returns the message of a question that was open when the connection was opened, given as JSON.
	Question(sessionID string, q json.RawMessage) any
	// Presence returns the messages about users who have come or gone.
	Presence(before, now session.Presence) []any
	// Encode returns the messages of an event: the last one has its seq, and others have none.
	Encode(e eventlog.Event) ([][]byte, error)
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

// ByName returns the protocol of a sub-protocol's name; [Chat] is the one without a name.
func ByName(name string) Protocol {
	if name == BlocksName {
		return Blocks{}
	}
	return Chat{}
}
