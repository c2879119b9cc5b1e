package bridge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
)

// Output prints complete lines, from any number of goroutines. After a failed write it prints
// nothing more; Err returns the error.
type Output struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

// NewOutput returns an Output that prints to w.
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

// Note prints a line of the bridge itself.
func (o *Output) Note(n stdio.Note) {
	line, err := n.Encode()
	if err != nil {
		o.fail(err)
		return
	}
	o.print(line)
}

// Err returns why no more lines can be printed, or nil.
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
	// One write per line, so that a reader of the pipe rarely sees a partial line.
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
