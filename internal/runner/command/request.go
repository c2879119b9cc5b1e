package command

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

// request decodes the JSON on a command's stdin. It does not wait for the end of stdin.
func request(stdin io.Reader, into any) error {
	if err := json.NewDecoder(stdin).Decode(into); err != nil {
		return &ExitError{runner.ExitUsage, fmt.Errorf("read request: %w", err)}
	}
	return nil
}

// reply writes the result of a command.
func reply(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }
