package acpformat

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// The notes of this bridge, in addition to the common ones. All of them but stdio.NoteKnown and
// stdio.NoteDied are lines of the notebook as well, which is the session's transcript.
const (
	// NoteBlock is the present state of a block: complete when its status is final. Data is the
	// block.
	NoteBlock stdio.NoteType = "block"
	// NoteAnswered says that the question ID has been answered.
	NoteAnswered stdio.NoteType = "answered"
	// NoteEnd ends a turn; data is EndNote.
	NoteEnd stdio.NoteType = "end"
)

// EndNote is how a turn ended.
type EndNote struct {
	At      time.Time       `json:"at"`
	Outcome session.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
	Usage   usage.Usage     `json:"usage,omitzero"`
	Model   string          `json:"model,omitempty"`
	Status  int             `json:"status,omitempty"` // with which the model's server refused the key
}
