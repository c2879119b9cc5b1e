package tools

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/runner/regular"
)

// screenshot reads the file that a call names. A relative path is relative to the working
// directory, which is the agent's.
func screenshot(input json.RawMessage) ([]byte, error) {
	var in struct {
		Path string `json:"path"`
	}
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	return regular.Read(in.Path, conversation.MaxImageBytes)
}
