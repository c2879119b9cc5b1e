package geminibridge

import "time"

// sessionNote is the data of stdio.NoteSession.
type sessionNote struct {
	At      time.Time `json:"at"`
	Version string    `json:"version,omitempty"`
	Loaded  bool      `json:"loaded,omitempty"` // the program resumed from its memory
}
