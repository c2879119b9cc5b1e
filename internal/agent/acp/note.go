package acp

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// The notes of this bridge, in addition to the common ones. All of them but stdio.NoteKnown and
// stdio.NoteDied are lines of the journal as well, which is the session's transcript.
const (
	// noteSession names the agent's session, in ID.
	noteSession stdio.NoteType = "session"
	// noteBlock is the present state of a block: complete when its status is final. Data is the
	// block.
	noteBlock stdio.NoteType = "block"
	// noteAnswered says that the question ID has been answered.
	noteAnswered stdio.NoteType = "answered"
	// noteEnd ends a turn; data is endNote.
	noteEnd stdio.NoteType = "end"
)

type endNote struct {
	At      time.Time       `json:"at"`
	Outcome session.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
	Usage   session.Usage   `json:"usage,omitzero"`
	Model   string          `json:"model,omitempty"`
}
