package acpformat

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// The notes of this bridge, in addition to the common ones. All of them except stdio.NoteKnown and
// stdio.NoteDied are also written to the notebook, which is the session's transcript.
const (
	// NoteBlock reports the current state of a block. The block is complete if its status is final.
	// Data is the block.
	NoteBlock stdio.NoteType = "block"
	// NoteAnswered reports that the question ID has been answered.
	NoteAnswered stdio.NoteType = "answered"
	// NoteEnd ends a turn; data is EndNote.
	NoteEnd stdio.NoteType = "end"
)

// EndNote describes how a turn ended.
type EndNote struct {
	At      time.Time       `json:"at"`
	Outcome session.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
	Usage   usage.Usage     `json:"usage,omitzero"`
	Model   string          `json:"model,omitempty"`
	Status  int             `json:"status,omitempty"` // HTTP status with which the model API rejected the key
}
