package codexbridge

import (
	"bytes"
	"encoding/json"
	"os"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
)

// notebook is the notebook's file, open for appending.
type notebook struct {
	file *os.File
}

// line appends a line of the stream.
func (nb *notebook) line(line []byte) error {
	_, err := nb.file.Write(append(bytes.TrimRight(line, "\r\n"), '\n'))
	return err
}

// note appends a note.
func (nb *notebook) note(n stdio.Note) error {
	var b bytes.Buffer
	out := bridge.NewOutput(&b)
	out.Note(n)
	if err := out.Err(); err != nil {
		return err
	}
	return nb.line(b.Bytes())
}

func (nb *notebook) close() error { return nb.file.Close() }

// data encodes the data of a note.
func data(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return nil // our own types can always be encoded
	}
	return b
}
