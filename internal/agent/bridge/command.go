package bridge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// CommandType says what a Command wants.
type CommandType string

// The commands that every bridge knows.
const (
	Prompt    CommandType = "prompt"    // begin a turn
	Answer    CommandType = "answer"    // answer what the agent has asked
	Interrupt CommandType = "interrupt" // break the turn of RunID off
)

// Command is a line that an adapter has written to its bridge's stdin.
type Command struct {
	Type     CommandType `json:"type"`
	RunID    string      `json:"runId,omitempty"`
	PromptID string      `json:"promptId,omitempty"`
	Content  string      `json:"content,omitempty"` // of a prompt
	Author   string      `json:"author,omitempty"`
	At       time.Time   `json:"at,omitzero"`
	// ID is what an answer is to, as the agent names it.
	ID string `json:"id,omitempty"`
	// Data is input for the agent in its own format: the result of its request, or options of a
	// prompt.
	Data json.RawMessage `json:"data,omitempty"`
}

// Encode returns the command as a line.
func (c Command) Encode() ([]byte, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode %s command: %w", c.Type, err)
	}
	return append(b, '\n'), nil
}

// Commands reads commands from stdin. The channel is closed when stdin ends. Lines that are no
// command are reported on stderr. The reader ends with stdin, or at the first line after done is
// closed.
func Commands(done <-chan struct{}, stdin io.Reader, stderr io.Writer) <-chan Command {
	out := make(chan Command) // the bridge takes one after the other
	go func() {
		defer close(out)
		err := ReadLines(stdin, func(line []byte) {
			if len(bytes.TrimSpace(line)) == 0 {
				return
			}
			var c Command
			if err := json.Unmarshal(line, &c); err != nil || c.Type == "" {
				fmt.Fprintf(stderr, "bridge: stdin: a line is no command: %v\n", err)
				return
			}
			select {
			case out <- c:
			case <-done:
			}
		})
		if err != nil {
			fmt.Fprintf(stderr, "bridge: read stdin: %v\n", err)
		}
	}()
	return out
}

// ReadLines calls each with every line until r ends, without the newline and however long it is;
// a last line without a newline counts. The slice is each's to keep.
func ReadLines(r io.Reader, each func(line []byte)) error {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if n := len(line); n > 0 {
			each(bytes.TrimSuffix(line, []byte("\n")))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
