package acpclient

import (
	"bytes"
	"errors"
	"iter"
	"os"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
)

// Notebook is the transcript of a session: the notes of its bridges, one per line. It is
// append-only.
type Notebook struct {
	*bridge.Output
	Session string // the agent's own ID of the session

	file *os.File
}

// OpenNotebook opens the notebook at name, or creates it, and returns its content.
func OpenNotebook(name string) (*Notebook, []byte, error) {
	file, past, err := bridge.OpenNotebook(name)
	if err != nil {
		return nil, nil, err
	}
	return &Notebook{Output: bridge.NewOutput(file), file: file}, past, nil
}

// Close closes the file. It returns the first error of a write.
func (nb *Notebook) Close() error { return errors.Join(nb.Err(), nb.file.Close()) }

// Notes returns the notes of a notebook. It skips other lines.
func Notes(past []byte) iter.Seq[stdio.Note] {
	return func(yield func(stdio.Note) bool) {
		for line := range bytes.Lines(past) {
			if n, ok := stdio.ParseNote(line); ok && !yield(n) {
				return
			}
		}
	}
}
