package stdio

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Note is a line that the bridge itself prints, among those of the agent:
// {"overwinter":{"type":…}}.
type Note struct {
	Type  NoteType `json:"type"`
	RunID string   `json:"runId,omitempty"`
	// ID is the agent's id of the subject of the note, such as a message.
	ID      string `json:"id,omitempty"`
	Message string `json:"message,omitempty"` // for people
	// Data contains further values for the agent's translator.
	Data json.RawMessage `json:"data,omitempty"`
}

// NoteType is the type of a Note.
type NoteType string

// The notes that bridges have in common.
const (
	NoteRun      NoteType = "run"      // the following lines belong to RunID
	NoteKnown    NoteType = "known"    // the prompt of RunID was delivered before and is not run again
	NoteFailed   NoteType = "failed"   // the turn of RunID has failed, for the reason in Message
	NoteDeadline NoteType = "deadline" // the turn timed out, see Message
	NoteDied     NoteType = "died"     // the agent's process has exited, see Message
	NoteSession  NoteType = "session"  // the agent's session, in ID; the first note of a notebook
	NoteDeclined NoteType = "declined" // the running turn of RunID has not accepted the prompt in ID
)

var (
	noteStart = []byte(`{"overwinter":`)
	noteEnd   = []byte(`}`)
	dataKey   = []byte(`,"data":`)
)

// ParseNote decodes a line as a note. It returns false if the line is the agent's.
func ParseNote(line []byte) (Note, bool) {
	inner, ok := bytes.CutPrefix(bytes.TrimSpace(line), noteStart)
	if !ok {
		return Note{}, false
	}
	inner, ok = bytes.CutSuffix(inner, noteEnd)
	if !ok {
		return Note{}, false
	}
	var n Note
	// The data, which may be long, comes last and is decoded only when needed. Only a key matches:
	// within a string, the quotes are escaped.
	if head, data, ok := bytes.Cut(inner, dataKey); ok && len(data) > 1 && data[len(data)-1] == '}' {
		n.Data = data[: len(data)-1 : len(data)-1]
		inner = append(head[:len(head):len(head)], '}')
	}
	if json.Unmarshal(inner, &n) != nil || n.Type == "" {
		return Note{}, false
	}
	return n, true
}

// Encode returns the note as a line, without the newline.
func (n Note) Encode() ([]byte, error) {
	b, err := json.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("encode %s note: %w", n.Type, err)
	}
	return append(append(bytes.Clone(noteStart), b...), noteEnd...), nil
}
