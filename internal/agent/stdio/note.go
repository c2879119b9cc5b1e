package stdio

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Note is a line of the bridge itself, among those of the agent: {"overwinter":{"type":…}}.
type Note struct {
	Type  NoteType `json:"type"`
	RunID string   `json:"runId,omitempty"`
	// ID is what the agent calls the thing that the note is about, such as a message.
	ID      string `json:"id,omitempty"`
	Message string `json:"message,omitempty"` // for people
	// Data is whatever else an agent's translator wants to know.
	Data json.RawMessage `json:"data,omitempty"`
}

// NoteType says what a Note is about.
type NoteType string

// The notes that bridges have in common.
const (
	NoteRun      NoteType = "run"      // what follows belongs to RunID
	NoteKnown    NoteType = "known"    // the agent had the prompt of RunID before: it is not run again
	NoteFailed   NoteType = "failed"   // the turn of RunID has failed, for the reason in Message
	NoteDeadline NoteType = "deadline" // the turn was given up because it took too long, see Message
	NoteDied     NoteType = "died"     // the agent's process has ended, see Message
	NoteSession  NoteType = "session"  // the agent's session, in ID; the first note of a notebook
	NoteDeclined NoteType = "declined" // the running turn of RunID has not taken the prompt in ID
)

var (
	noteStart = []byte(`{"overwinter":`)
	noteEnd   = []byte(`}`)
	dataKey   = []byte(`,"data":`)
)

// ParseNote reads a line as a note; false means that it is the agent's.
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
	// The data, which may be long, comes last and is parsed only where it is needed. Only a key can
	// look like this: within a string its quotes have backslashes.
	if head, data, ok := bytes.Cut(inner, dataKey); ok && len(data) > 1 && data[len(data)-1] == '}' {
		n.Data = data[: len(data)-1 : len(data)-1]
		inner = append(head[:len(head):len(head)], '}')
	}
	if json.Unmarshal(inner, &n) != nil || n.Type == "" {
		return Note{}, false
	}
	return n, true
}

// Encode returns the note as a line, without its end.
func (n Note) Encode() ([]byte, error) {
	b, err := json.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("encode %s note: %w", n.Type, err)
	}
	return append(append(bytes.Clone(noteStart), b...), noteEnd...), nil
}
