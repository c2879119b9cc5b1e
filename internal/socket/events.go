package socket

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/presence"
)

// EventsName is the sub-protocol of [Events].
const EventsName = "overwinter.events.v1"

// typeHeartbeat is the message of Events after a time without events, since web pages cannot see
// ping frames.
const typeHeartbeat Type = "heartbeat"

// Events is the protocol whose messages are the events of the log, with the same bytes as the data
// of server-sent events. It begins with the first event, has no opening, and does not report users.
type Events struct{}

// Init implements Protocol: there is no first message.
func (Events) Init(Opening) any { return nil }

// Page implements Protocol; it is not called, since the opening has no conversation.
func (Events) Page(string, conversation.Conversation, bool) any { return nil }

// Question implements Protocol: a question is an event.
func (Events) Question(string, json.RawMessage) any { return nil }

// Presence implements Protocol.
func (Events) Presence(_, _ presence.Presence) []any { return nil }

// Beat implements Protocol.
func (Events) Beat() any { return Message{Type: typeHeartbeat, Data: struct{}{}} }

// Messages implements Protocol: the message is the line.
func (Events) Messages(line []byte) ([][]byte, error) { return [][]byte{line}, nil }
