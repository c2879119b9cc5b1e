package socket

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/resource"
)

// Init is the first message of a connection: the current state of the session.
type Init struct {
	Type Type `json:"type"`
	// Seq is the position after which events follow.
	Seq     int64       `json:"seq"`
	Session InitSession `json:"session"`
	Data    InitData    `json:"data"`
}

// InitSession is the session with its conversation.
type InitSession struct {
	resource.SessionJSON
	// Messages is nil for a client that resumes at its position, which already has them.
	Messages *[]Utterance `json:"messages,omitempty"`
	// More means that further parts of the conversation follow immediately.
	More bool `json:"more,omitempty"`
}

// InitData is the work in progress of a session, and its viewers.
type InitData struct {
	Sandbox
	Work
	ConnectedClients int      `json:"connectedClients"`
	ConnectedUsers   []User   `json:"connectedUsers"`
	AvailableModels  []string `json:"availableModels"`
}

// User is a person who views a session.
type User struct {
	UserID string `json:"userId"`
	Name   string `json:"name"`
}

// Init implements Protocol.
func (Chat) Init(o Opening) any {
	m := Init{Type: typeInit, Seq: o.Seq, Session: InitSession{SessionJSON: o.Session, More: o.More}, Data: o.Data}
	if o.History != nil {
		m.Session.Messages = new(History(*o.History))
	}
	return m
}

// Page implements Protocol.
func (Chat) Page(_ string, c conversation.Conversation, more bool) any {
	return Message{Type: typeMessages, Data: Page{Messages: History(c), More: more}}
}

// Question implements Protocol.
func (Chat) Question(_ string, q json.RawMessage) any {
	return Message{Type: typeQuestion, Data: q}
}

// Page is the data of a message with a further part of the conversation.
type Page struct {
	Messages []Utterance `json:"messages"`
	More     bool        `json:"more"`
}

// Range is the data of a gap: the positions of events that were deleted before this client received them.
type Range struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Problem is the data of an error.
type Problem struct {
	Code    string          `json:"code"`
	Message string          `json:"message"`
	Errors  json.RawMessage `json:"errors,omitempty"`
}

// Done is the data of an acknowledgement: the response of the HTTP API to the request.
type Done struct {
	Status    int             `json:"status"`
	RequestID string          `json:"requestId"`
	Result    json.RawMessage `json:"result"`
}
