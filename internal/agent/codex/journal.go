package codex

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"path/filepath"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// The journal of a session has what the agent's own files lack, in the format of the stream: the
// order in which items began and ended, calls that never ended, failed requests, text in progress
// when a turn was aborted, and which thread is the main one. It is a separate file, so that the
// agent's files stay as the agent wrote them.

// journalPath is where a session's journal is.
func journalPath(home, id string) string { return path.Join(home, "overwinter", id+".jsonl") }

// isJournal reports whether a transcript file is a journal.
func isJournal(name string) bool { return path.Base(path.Dir(filepath.ToSlash(name))) == "overwinter" }

// Notes that are in the journal alone.
const (
	noteBegan stdio.NoteType = "began" // an item has begun
	noteEnded stdio.NoteType = "ended" // an item has ended; its rollout has it
	noteWords stdio.NoteType = "words" // how much of an item was written when its turn was aborted
)

// itemData is the data of those notes, whose ID is the item's.
type itemData struct {
	Thread string `json:"threadId"`
	Turn   string `json:"turnId"`
	Kind   string `json:"kind,omitempty"`
	At     int64  `json:"atMs,omitempty"`
	Text   string `json:"text,omitempty"`
}

// runData is the data of stdio.NoteRun, whose ID is the main thread's.
type runData struct {
	Model string `json:"model,omitempty"`
}

// knownData is the data of stdio.NoteKnown.
type knownData struct {
	Outcome session.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
}

// journal is the file, open for more.
type journal struct {
	file *os.File
}

// openJournal opens the journal and terminates a truncated last line.
func openJournal(name string) (*journal, []byte, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, nil, err
	}
	have, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return nil, nil, err
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if len(have) > 0 && !bytes.HasSuffix(have, []byte("\n")) {
		if _, err := file.WriteString("\n"); err != nil {
			return nil, nil, err
		}
	}
	return &journal{file: file}, have, nil
}

// line writes a line of the stream down.
func (j *journal) line(line []byte) error {
	_, err := j.file.Write(append(bytes.TrimRight(line, "\r\n"), '\n'))
	return err
}

// note writes a note down.
func (j *journal) note(n stdio.Note) error {
	var b bytes.Buffer
	out := bridge.NewOutput(&b)
	out.Note(n)
	if err := out.Err(); err != nil {
		return err
	}
	return j.line(b.Bytes())
}

func (j *journal) close() error { return j.file.Close() }

// data encodes what a note carries.
func data(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return nil // our own types always encode
	}
	return b
}
