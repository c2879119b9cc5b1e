package bridge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
)

// Commands reads commands from stdin. The channel is closed when stdin is closed. Lines that are
// not commands are reported on stderr. The reader ends with stdin, or at the first line after done
// is closed.
func Commands(done <-chan struct{}, stdin io.Reader, stderr io.Writer) <-chan stdio.Command {
	out := make(chan stdio.Command) // the bridge handles one at a time
	go func() {
		defer close(out)
		err := ReadLines(stdin, func(line []byte) {
			if len(bytes.TrimSpace(line)) == 0 {
				return
			}
			var c stdio.Command
			if err := json.Unmarshal(line, &c); err != nil || c.Type == "" {
				fmt.Fprintf(stderr, "bridge: stdin: a line is not a command: %v\n", err)
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

// ReadLines calls each with every line until r ends, without the newline and of any length; a last
// line without a newline counts. each may keep the slice.
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
