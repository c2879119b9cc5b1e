package opencodeformat

import (
	"encoding/json"
)

// Command is the word that makes overwinter-runner run the bridge.
const Command = "opencode-bridge"

// TranscriptSuffix ends the names of the files in which the bridge saves the sessions of the agent,
// each as <id>.json.
const TranscriptSuffix = ".json"

// Version is the pinned version of OpenCode.
const Version = "1.18.33"

// Binary is where a sandbox image has the program.
const Binary = "/overwinter/agents/opencode/bin/opencode"

// DatabaseName is the file, below the directory for data, in which OpenCode keeps its sessions.
const DatabaseName = "opencode/opencode.db"

// The kinds of answer, as the bridge tells them apart.
const (
	ReplyPermission = "permission"
	ReplyQuestion   = "question"
)

// Reply is the data of an answer on its way to the server.
type Reply struct {
	Kind   string          `json:"kind"`
	Reject bool            `json:"reject,omitempty"` // of a question: it is not answered
	Body   json.RawMessage `json:"body"`
}
