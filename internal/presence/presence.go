// Package presence has the clients that view a session, and their users.
package presence

// Viewer is a client that views a session.
type Viewer struct {
	Client    string // unique for each connection
	SessionID string
	User      User
}

// User is a person. The zero value is an anonymous user.
type User struct {
	ID   string
	Name string
}

// Presence has the viewers of a session.
type Presence struct {
	Clients int
	Users   []User // unique by ID, without anonymous users; at most MaxUsers
}

// Bounds of users.
const (
	MaxUserIDBytes   = 128
	MaxUserNameRunes = 200
	// MaxUsers bounds the users of a Presence.
	MaxUsers = 100
)
