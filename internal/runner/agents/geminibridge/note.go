package geminibridge

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
)

// The notes of this bridge, in addition to the common ones. All of them but stdio.NoteKnown are
// lines of the journal as well, so that a transcript has what the stream has.
const (
	// noteSession names the agent's session, in ID; data is sessionNote.
	noteSession stdio.NoteType = "session"
)

type sessionNote struct {
	At      time.Time `json:"at"`
	Version string    `json:"version,omitempty"`
	Loaded  bool      `json:"loaded,omitempty"` // it resumed from its memory
}
