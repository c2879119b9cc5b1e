package export

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/overwinter-dev/overwinter/client"
)

// The format of files of this version.
const (
	Format  = "overwinter-session"
	Version = 1
)

// Kind is the kind of a record.
type Kind string

// The kinds of record.
const (
	kindHeader  Kind = "header"
	KindSession Kind = "session"
	KindPrompt  Kind = "prompt"
	KindBundle  Kind = "bundle"
	KindEvent   Kind = "event"
	KindHistory Kind = "history"
	kindEnd     Kind = "end"
)

// Record is one line of a file.
type Record struct {
	Record Kind            `json:"record"`
	Data   json.RawMessage `json:"data"`
}

// Header is the data of the first record.
type Header struct {
	Format     string      `json:"format"`
	Version    int         `json:"version"`
	Release    string      `json:"release"` // of the program that has written the file
	SessionID  string      `json:"sessionId"`
	ExportedAt client.Time `json:"exportedAt"`
	Content    bool        `json:"content"`
}

// End is the data of the last record.
type End struct {
	Records int `json:"records"`
	// HistoryMissing is the reason why the history is missing or incomplete; empty if it is
	// complete.
	HistoryMissing string `json:"historyMissing,omitempty"`
}

// Writer writes a file.
type Writer struct {
	out     io.Writer
	records int
}

// NewWriter writes the header.
func NewWriter(out io.Writer, h Header) (*Writer, error) {
	w := &Writer{out: out}
	return w, w.Write(kindHeader, h)
}

// Write writes a record.
func (w *Writer) Write(kind Kind, data any) error {
	encoded, err := json.Marshal(data)
	if err == nil {
		encoded, err = json.Marshal(Record{Record: kind, Data: encoded})
	}
	if err != nil {
		return fmt.Errorf("encode a %s record: %w", kind, err)
	}
	w.records++
	if _, err = w.out.Write(append(encoded, '\n')); err != nil {
		return fmt.Errorf("write the export: %w", err)
	}
	return nil
}

// End writes the end, without which the file counts as truncated.
func (w *Writer) End(historyMissing string) error {
	return w.Write(kindEnd, End{Records: w.records, HistoryMissing: historyMissing})
}
