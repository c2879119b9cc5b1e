package socket

// TypeSessionsChanged is the message of the WebSocket of all sessions.
const TypeSessionsChanged Type = "sessions:changed"

// Changes is the data of sessions:changed.
type Changes struct {
	SessionIDs []string `json:"sessionIds"`
	All        bool     `json:"all"` // any session may have changed; no ids are given
}
