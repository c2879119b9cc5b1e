// Package agentmessage has the messages that agents send to sessions: to their own, to its parent,
// and to its forks.
package agentmessage

import (
	"fmt"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// AuthorPrefix is the prefix of the author of a prompt that an agent has sent; the id of the
// agent's session follows.
const AuthorPrefix = "agent:"

// The sessions that an agent names without their id.
const (
	Self   = "self"   // its own
	Parent = "parent" // the one that its own was forked from
)

// Message is a prompt that the agent of a session sends, to its own session, its parent or one of its forks.
type Message struct {
	ID        string // of the prompt
	From      string // the session of the agent
	To        string // a session, Self or Parent; empty is Self
	Content   string
	Depth     int64  // of the prompt that the agent works on
	RequestID string // of that prompt
}

// Relation is the relation of a session to another one.
type Relation string

// The relations of the sender of a message to the session that gets it.
const (
	RelationSelf   Relation = "self"
	RelationParent Relation = "parent"
	RelationFork   Relation = "fork"
)

// Prompt returns the message as a prompt for a session to which its sender has the given relation.
// A message from another session names its sender, so that the agent can answer.
func (m Message) Prompt(sessionID string, sender Relation) session.Prompt {
	content := m.Content
	if sender != RelationSelf {
		of := "the parent"
		if sender == RelationFork {
			of = "a fork"
		}
		content = fmt.Sprintf("[A message of the agent of session %s, %s of this one. If it needs an answer, send it with the tool session_message.]\n\n%s", m.From, of, m.Content)
	}
	return session.Prompt{ID: m.ID, SessionID: sessionID, Content: content, Author: AuthorPrefix + m.From, Depth: m.Depth + 1, RequestID: m.RequestID}
}
