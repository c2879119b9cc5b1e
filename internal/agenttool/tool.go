package agenttool

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// Server is the name of the server under which agents know the tools.
const Server = "overwinter"

// The names of the tools.
const (
	SetTitle = "set_title"
)

// The bounds of calls.
const (
	// MaxInputBytes bounds the input of a call.
	MaxInputBytes = 256 << 10
	// MaxPerTurn bounds the calls of a turn.
	MaxPerTurn = 500
	// MaxWaiting bounds the calls of a sandbox that wait for an answer at a time.
	MaxWaiting = 16
)

// Tool describes a tool to an agent.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // of its input
}

// All are the tools, in the order in which agents see them.
func All() []Tool {
	return []Tool{
		{
			Name:        SetTitle,
			Description: "Set the title of this session, by which people find it in their list of sessions. Call it once you know what the task is about, and again if that changes. A title that a person has given the session stays.",
			Schema: object(
				text("title", fmt.Sprintf("A few words in the language of the user, at most %d characters.", session.MaxTitleRunes), session.MaxTitleRunes),
			),
		},
	}
}

// Call is the call of a tool.
type Call struct {
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input"`
}

// Answer is what the agent is answered.
type Answer struct {
	Text   string `json:"text"`
	Failed bool   `json:"failed,omitempty"`
}

// Refuse is the answer to a call that is not carried out.
func Refuse(format string, args ...any) Answer {
	return Answer{Text: fmt.Sprintf(format, args...), Failed: true}
}

// prefixes are what agents put before the names of the tools of a server.
var prefixes = []string{"mcp__" + Server + "__", "mcp_" + Server + "_", Server + "__", Server + "_", Server + ".", Server + "/"}

// Own reports whether an agent's name of a tool, such as mcp__overwinter__set_title, is that of one of All.
func Own(name string) bool {
	for _, prefix := range prefixes {
		if own, found := strings.CutPrefix(name, prefix); found {
			return slices.ContainsFunc(All(), func(t Tool) bool { return t.Name == own })
		}
	}
	return false
}
