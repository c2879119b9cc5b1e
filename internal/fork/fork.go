// Package fork has what sessions that begin at a point of another one are made of: the point, the request, and the
// conversation that an agent is given of the agent before it.
package fork

// Point is a point of another session.
type Point struct {
	BundleID string
	PromptID string // newest prompt that the agent's memory has there
	// HandedFrom is the agent that worked there, if the session has another one; empty else.
	HandedFrom string
}

// HandOff is what an agent is given of a conversation that another one had.
type HandOff struct {
	From string // the other agent
	Said []Said // oldest first
	More bool   // there was more before it
}

// Said is a message of a conversation, or a call of a tool.
type Said struct {
	Kind   SaidKind
	Author string // of a prompt, if it names one
	Tool   string // that was called
	Text   string // or its beginning
}

// SaidKind says what a message is.
type SaidKind string

// The kinds of message.
const (
	SaidByUser  SaidKind = "user"
	SaidByAgent SaidKind = "agent"
	SaidByTool  SaidKind = "tool" // a call, without its result
)

// The bounds of a hand-off, in bytes.
const (
	MaxHandOff     = 32 << 10
	MaxHandOffText = 4 << 10 // of a message
	MaxHandOffCall = 256     // of a call of a tool
)

// Fork is a request for a session that begins where another one was.
type Fork struct {
	ID        string // of the new session
	SessionID string // that is forked
	// BundleID or PromptID name the point: a bundle of the session, or after a prompt. Before: before the prompt.
	BundleID string
	PromptID string
	Before   bool
	Title    string // empty: that of the session
	Profile  string // empty: that of the session
	Agent    string // empty: that of the session
}

// Policy says what a purge does about the forks of a session.
type Policy string

// The policies for forks.
const (
	Refuse Policy = ""       // there must be none
	Detach Policy = "detach" // they keep what they need
	Purge  Policy = "purge"  // they are purged too
)

// MaxNamed bounds the forks that a refusal names.
const MaxNamed = 100
