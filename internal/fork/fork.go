// Package fork has the data of sessions that begin at a point of another one: the point, the
// request, and the previous agent's conversation for a different agent.
package fork

// Point is a point of another session.
type Point struct {
	BundleID string
	PromptID string // newest prompt in the agent's memory at the point
	// HandedFrom is the agent of the original session if it differs; otherwise empty.
	HandedFrom string
}

// HandOff is the part of another agent's conversation that an agent gets.
type HandOff struct {
	From  string // the other agent
	Items []Item // oldest first
	More  bool   // earlier messages were omitted
}

// Item is a message of a conversation, or a call of a tool.
type Item struct {
	Kind   ItemKind
	Author string // of a prompt, if it names one
	Tool   string // that was called
	Text   string // or its beginning
}

// ItemKind is the kind of a message.
type ItemKind string

// The kinds of message.
const (
	ItemOfUser  ItemKind = "user"
	ItemOfAgent ItemKind = "agent"
	ItemOfTool  ItemKind = "tool" // a call, without its result
)

// The bounds of a hand-off, in bytes.
const (
	MaxHandOff     = 32 << 10
	MaxHandOffText = 4 << 10 // of a message
	MaxHandOffCall = 256     // of a call of a tool
)

// Fork is a request for a session that begins at a point of another one.
type Fork struct {
	ID        string // of the new session
	SessionID string // that is forked
	// BundleID or PromptID names the point: a bundle of the session, or the end of a prompt. With
	// Before, the point is before the prompt.
	BundleID string
	PromptID string
	Before   bool
	Title    string // empty: that of the session
	Profile  string // empty: that of the session
	Agent    string // empty: that of the session
}

// Policy selects how a purge treats the forks of a session.
type Policy string

// The policies for forks.
const (
	Refuse Policy = ""       // the session must have no forks
	Detach Policy = "detach" // they keep the data that they need
	Purge  Policy = "purge"  // they are purged too
)

// MaxNamed bounds the forks that a refusal lists.
const MaxNamed = 100
