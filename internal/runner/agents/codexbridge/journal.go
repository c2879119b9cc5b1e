package codexbridge

import (
	"bytes"
	"encoding/json"
	"os"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
)

// journal is the file, open for more.
type journal struct {
	file *os.File
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
