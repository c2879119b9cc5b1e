package export

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/overwinter-dev/overwinter/client"
)

// Bounds of a file that is read.
const (
	maxLine    = 16 << 20
	maxRecords = 1_000_000
)

// File is a file that was read.
type File struct {
	Header  Header
	Session client.Session
	Prompts []client.Prompt
	Bundles []client.Bundle
	Events  []Event
	Runs    []Run // of the workflow, in the order of the file
	End     *End  // nil if the file is truncated
}

// Run is the history of one run of the workflow.
type Run struct {
	ID     string
	Events []json.RawMessage
}

// Read reads a file. It returns the complete records of a truncated file.
func Read(r io.Reader) (File, error) {
	var f File
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	n := 0
	for ; lines.Scan(); n++ {
		if n == maxRecords {
			return f, fmt.Errorf("the file has more than %d records", maxRecords)
		}
		var record Record
		if err := json.Unmarshal(lines.Bytes(), &record); err != nil {
			if n == 0 {
				return f, errors.New("the file is not an exported session: its first line is not a record")
			}
			return f, nil // a truncated line: the file has no end
		}
		if n == 0 {
			if err := f.header(record); err != nil {
				return f, err
			}
			continue
		}
		if err := f.take(record); err != nil {
			return f, fmt.Errorf("record %d: %w", n+1, err)
		}
	}
	if err := lines.Err(); err != nil {
		return f, fmt.Errorf("read the export: %w", err)
	}
	if n == 0 {
		return f, errors.New("the file is empty")
	}
	if f.End != nil && f.End.Records != n-1 {
		return f, fmt.Errorf("the file has %d records, but its end record states %d", n-1, f.End.Records)
	}
	return f, nil
}

func (f *File) header(r Record) error {
	if r.Record != kindHeader || json.Unmarshal(r.Data, &f.Header) != nil || f.Header.Format != Format {
		return errors.New("the file is not an exported session: its first record is not its header")
	}
	if f.Header.Version > Version {
		return fmt.Errorf("the file has version %d of the format, and this program reads up to %d: use overwinter %s", f.Header.Version, Version, f.Header.Release)
	}
	return nil
}

// take reads a record after the header, and ignores unknown ones.
func (f *File) take(r Record) error {
	switch r.Record {
	case KindSession:
		return json.Unmarshal(r.Data, &f.Session)
	case KindPrompt:
		return appended(r.Data, &f.Prompts)
	case KindBundle:
		return appended(r.Data, &f.Bundles)
	case KindEvent:
		return appended(r.Data, &f.Events)
	case KindHistory:
		var e client.HistoryEvent
		if err := json.Unmarshal(r.Data, &e); err != nil {
			return err
		}
		if n := len(f.Runs); n == 0 || f.Runs[n-1].ID != e.RunID {
			f.Runs = append(f.Runs, Run{ID: e.RunID})
		}
		run := &f.Runs[len(f.Runs)-1]
		run.Events = append(run.Events, e.Event)
	case kindEnd:
		f.End = new(End)
		return json.Unmarshal(r.Data, f.End)
	case kindHeader:
		return errors.New("a second header")
	}
	return nil
}

func appended[T any](data []byte, to *[]T) error {
	var item T
	err := json.Unmarshal(data, &item)
	*to = append(*to, item)
	return err
}
