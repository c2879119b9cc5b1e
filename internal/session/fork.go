package session

// ForkPoint is a point of another session.
type ForkPoint struct {
	BundleID string
	PromptID string // newest prompt that the agent's memory has there
}

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
}

// ForksPolicy says what a purge does about the forks of a session.
type ForksPolicy string

// The policies for forks.
const (
	ForksRefuse ForksPolicy = ""       // there must be none
	ForksDetach ForksPolicy = "detach" // they keep what they need
	ForksPurge  ForksPolicy = "purge"  // they are purged too
)

// MaxForksNamed bounds the forks that a refusal names.
const MaxForksNamed = 100
