package opencodeformat

import (
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// NoteEnd reports that a turn has ended and its transcript is saved.
const NoteEnd stdio.NoteType = "end"

// RunNote is the data of the note that a run begins. The note's ID is the session of the main
// conversation.
type RunNote struct {
	Title string `json:"title,omitempty"`
	// Before is the newest message before the run.
	Before string `json:"before,omitempty"`
}

// EndNote is the data of the note that a run has ended.
type EndNote struct {
	Outcome session.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
	// Status and URL belong to the response of the model API that failed the run.
	Status int    `json:"status,omitempty"`
	URL    string `json:"url,omitempty"`
}

// FailedBy returns the end of a run that an error has ended.
func FailedBy(e *NativeError) EndNote {
	end := EndNote{Outcome: session.OutcomeFailed, Reason: e.Words()}
	end.Status, end.URL = e.Failure()
	return end
}
