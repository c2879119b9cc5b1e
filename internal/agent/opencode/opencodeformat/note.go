package opencodeformat

import (
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// NoteEnd is the bridge's note that a turn is over and its transcript written.
const NoteEnd stdio.NoteType = "end"

// RunNote is the data of the note that a run begins; its ID is the session of the main conversation.
type RunNote struct {
	Title string `json:"title,omitempty"`
	// Before is the newest message there was.
	Before string `json:"before,omitempty"`
}

// EndNote is the data of the note that a run is over.
type EndNote struct {
	Outcome session.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
	// Status and URL are those of the response of a model's server that failed the run.
	Status int    `json:"status,omitempty"`
	URL    string `json:"url,omitempty"`
}

// FailedBy is the end of a run that an error has ended.
func FailedBy(e *NativeError) EndNote {
	end := EndNote{Outcome: session.OutcomeFailed, Reason: e.Words()}
	end.Status, end.URL = e.Failure()
	return end
}
