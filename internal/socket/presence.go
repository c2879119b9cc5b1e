package socket

import "github.com/overwinter-dev/overwinter/internal/presence"

// The messages of Chat about the viewers of a session.
const (
	typeUserJoined Type = "user.joined"
	typeUserLeft   Type = "user.left"
)

// presenceData is the data of both messages.
type presenceData struct {
	User             User   `json:"user"`
	ConnectedClients int    `json:"connectedClients"`
	ConnectedUsers   []User `json:"connectedUsers"`
}

// Users converts users.
func Users(users []presence.User) []User {
	out := make([]User, len(users))
	for i, u := range users {
		out[i] = User{UserID: u.ID, Name: u.Name}
	}
	return out
}

// Presence implements Protocol: it returns a message for each user who has joined or left, and none
// if only the number of clients has changed.
func (Chat) Presence(before, now presence.Presence) []any {
	var out []any
	report := func(kind Type, u presence.User) {
		out = append(out, Message{Type: kind, Data: presenceData{User{UserID: u.ID, Name: u.Name}, now.Clients, Users(now.Users)}})
	}
	was, is := byID(before.Users), byID(now.Users)
	for _, u := range before.Users {
		if _, connected := is[u.ID]; !connected {
			report(typeUserLeft, u)
		}
	}
	for _, u := range now.Users {
		if _, connected := was[u.ID]; !connected {
			report(typeUserJoined, u)
		}
	}
	return out
}

// Presence implements Protocol: Blocks has no messages about users.
func (Blocks) Presence(_, _ presence.Presence) []any { return nil }

func byID(users []presence.User) map[string]struct{} {
	out := make(map[string]struct{}, len(users))
	for _, u := range users {
		out[u.ID] = struct{}{}
	}
	return out
}
