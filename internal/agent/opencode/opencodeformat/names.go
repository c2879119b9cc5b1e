package opencodeformat

import (
	"encoding/json"
)

// Command is the runner subcommand that runs the bridge.
const Command = "opencode-bridge"

// TranscriptSuffix is the suffix of the files, <id>.json, in which the bridge saves the agent's
// sessions.
const TranscriptSuffix = ".json"

// Version is the pinned version of OpenCode.
const Version = "1.18.33"

// Binary is the path of the program in a sandbox image.
const Binary = "/overwinter/agents/opencode/bin/opencode"

// DatabaseName is the path, below the data directory, of the file in which OpenCode keeps its
// sessions.
const DatabaseName = "opencode/opencode.db"

// The kinds of answer that the bridge distinguishes.
const (
	ReplyPermission = "permission"
	ReplyQuestion   = "question"
)

// Reply is the data of an answer to the server.
type Reply struct {
	Kind   string          `json:"kind"`
	Reject bool            `json:"reject,omitempty"` // do not answer the question
	Body   json.RawMessage `json:"body"`
}
