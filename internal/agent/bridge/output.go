package bridge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
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

// Output prints whole lines, from any number of goroutines. After a failed write it prints nothing
// more; Err returns the error.
type Output struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

// NewOutput prints to w.
func NewOutput(w io.Writer) *Output { return &Output{w: w} }

// Raw prints a line of the agent unchanged. JSON with line breaks is compacted to one line.
func (o *Output) Raw(line []byte) {
	line = bytes.TrimRight(line, "\r\n")
	if bytes.IndexByte(line, '\n') >= 0 {
		var b bytes.Buffer
		if json.Compact(&b, line) == nil {
			line = b.Bytes()
		} else {
			line = bytes.ReplaceAll(line, []byte("\n"), []byte(" "))
		}
	}
	o.print(line)
}

// Note prints a line of the bridge's own.
func (o *Output) Note(n Note) {
	b, err := json.Marshal(n)
	if err != nil {
		o.fail(fmt.Errorf("encode %s note: %w", n.Type, err))
		return
	}
	o.print(append(append(bytes.Clone(noteStart), b...), noteEnd...))
}

// Err is why lines can be printed no more, or nil.
func (o *Output) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

func (o *Output) print(line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return
	}
	// One write a line: what reads a pipe then seldom sees a half.
	if _, err := o.w.Write(append(line[:len(line):len(line)], '\n')); err != nil {
		o.err = fmt.Errorf("print a line: %w", err)
	}
}

func (o *Output) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
}
