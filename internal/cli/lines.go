package cli

import (
	"bufio"
	"context"
	"io"
	"strings"
)

// readLines reads lines until the input ends, which closes the channel. Nothing is read ahead of the
// line that is waiting to be received.
func readLines(ctx context.Context, r io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		in := bufio.NewReader(r)
		for {
			line, err := in.ReadString('\n')
			if line != "" {
				select {
				case lines <- strings.TrimRight(line, "\r\n"):
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}
