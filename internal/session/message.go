package session

import "fmt"

// AgentAuthor is what the author of a prompt begins with that the agent of a session has sent; the id of the session follows.
const AgentAuthor = "agent:"

// The sessions that an agent names without their id.
const (
	MessageSelf   = "self"   // its own
	MessageParent = "parent" // the one that its own was forked from
)

// AgentMessage is a prompt that the agent of a session sends, to its own session, its parent or one of its forks.
type AgentMessage struct {
	ID        string // of the prompt
	From      string // the session of the agent
	To        string // a session, MessageSelf or MessageParent; empty is MessageSelf
	Content   string
	Depth     int64  // of the prompt that the agent works on
	RequestID string // of that prompt
}

// Relation is what a session is to another one.
type Relation string

// The relations of the sender of a message to the session that gets it.
const (
	RelationSelf   Relation = "self"
	RelationParent Relation = "parent"
	RelationFork   Relation = "fork"
)

// Prompt is the prompt that the message is for a session, to which its sender has a relation. A message from another session says
// where it comes from, so that the agent can answer.
func (m AgentMessage) Prompt(sessionID string, sender Relation) Prompt {
	content := m.Content
	if sender != RelationSelf {
		of := "the parent"
		if sender == RelationFork {
			of = "a fork"
		}
		content = fmt.Sprintf("[A message of the agent of session %s, %s of this one. If it needs an answer, send it with the tool session_message.]\n\n%s", m.From, of, m.Content)
	}
	return Prompt{ID: m.ID, SessionID: sessionID, Content: content, Author: AgentAuthor + m.From, Depth: m.Depth + 1, RequestID: m.RequestID}
}
