// Package presence says which clients look at a session, and who their users are.
package presence

// Viewer is a client that looks at a session.
type Viewer struct {
	Client    string // unique for each connection
	SessionID string
	User      User
}

// User is a person. The zero value is one of whom nothing is known.
type User struct {
	ID   string
	Name string
}

// Presence is who looks at a session.
type Presence struct {
	Clients int
	Users   []User // by ID, each once, those of whom nothing is known left out; at most MaxUsers
}

// Bounds of users.
const (
	MaxUserIDBytes   = 128
	MaxUserNameRunes = 200
	// MaxUsers bounds the users of a Presence.
	MaxUsers = 100
)
