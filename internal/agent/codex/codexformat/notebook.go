package codexformat

import (
	"path"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// The notebook of a session has what the agent's own files lack, in the format of the stream: the
// order in which items began and ended, calls that never ended, failed requests, text in progress
// when a turn was aborted, and which thread is the main one. It is a separate file, so that the
// agent's files stay as the agent wrote them.

// NotebookPath is where a session's notebook is.
func NotebookPath(home, id string) string { return path.Join(home, "overwinter", id+".jsonl") }

// Notes that are in the notebook alone.
const (
	NoteBegan stdio.NoteType = "began" // an item has begun
	NoteEnded stdio.NoteType = "ended" // an item has ended; its rollout has it
	NoteWords stdio.NoteType = "words" // how much of an item was written when its turn was aborted
)

// ItemData is the data of those notes, whose ID is the item's.
type ItemData struct {
	Thread string `json:"threadId"`
	Turn   string `json:"turnId"`
	Kind   string `json:"kind,omitempty"`
	At     int64  `json:"atMs,omitempty"`
	Text   string `json:"text,omitempty"`
}

// RunData is the data of stdio.NoteRun, whose ID is the main thread's.
type RunData struct {
	Model string `json:"model,omitempty"`
}

// KnownData is the data of stdio.NoteKnown.
type KnownData struct {
	Outcome session.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
	Failure
}
