package acp

import (
	"encoding/json"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
)

// OfClient reports whether a method lets an agent use its client's files and terminals. The agent
// reports the result as that of a tool call.
func OfClient(method string) bool {
	return strings.HasPrefix(method, "fs/") || strings.HasPrefix(method, "terminal/")
}

// message is a line of the agent.
type message struct {
	ID     json.RawMessage  `json:"id"`
	Method string           `json:"method"`
	Params acpformat.Params `json:"params"`
	Result json.RawMessage  `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// isResponse reports whether a line answers a request.
func (m message) isResponse() bool {
	return m.Method == "" && len(m.ID) > 0 && (m.Result != nil || m.Error != nil)
}
