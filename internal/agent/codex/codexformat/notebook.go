package codexformat

import (
	"path"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// The notebook of a session contains the information that the agent's own files lack, in the format
// of the stream: the order in which items began and ended, calls that never ended, failed requests,
// text in progress when a turn was aborted, and the main thread. It is a separate file, so that the
// agent's files remain as the agent wrote them.

// NotebookPath returns the path of a session's notebook.
func NotebookPath(home, id string) string { return path.Join(home, "overwinter", id+".jsonl") }

// Notes that are only in the notebook.
const (
	NoteBegan stdio.NoteType = "began" // an item has begun
	NoteEnded stdio.NoteType = "ended" // an item has ended; the rollout contains it
	NoteWords stdio.NoteType = "words" // the text of an item when its turn was aborted
)

// ItemData is the data of these notes, whose ID is the item's id.
type ItemData struct {
	Thread string `json:"threadId"`
	Turn   string `json:"turnId"`
	Kind   string `json:"kind,omitempty"`
	At     int64  `json:"atMs,omitempty"`
	Text   string `json:"text,omitempty"`
}

// RunData is the data of stdio.NoteRun, whose ID is the main thread's id.
type RunData struct {
	Model string `json:"model,omitempty"`
}

// KnownData is the data of stdio.NoteKnown.
type KnownData struct {
	Outcome session.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
	Failure
}
