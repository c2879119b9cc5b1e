package acpbridge

import (
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
)

// The notes of this bridge, in addition to the common ones. All of them but stdio.NoteKnown and
// stdio.NoteDied are lines of the journal as well, which is the session's transcript.
const (
	// noteSession names the agent's session, in ID.
	noteSession stdio.NoteType = "session"
)
