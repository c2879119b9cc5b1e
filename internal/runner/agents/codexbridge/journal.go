package codexbridge

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
)

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
