package codexformat

import (
	"strings"
)

// Command is the word that makes overwinter-runner run Main.
const Command = "codex-bridge"

// Version is the pinned version of Codex.
const Version = "0.169.0"

// Provider is the model provider of every thread in a sandbox: the built-in one requires a login instead of a key.
const Provider = "overwinter"

// Directory is where a sandbox image has what the agent is installed from.
const Directory = "/overwinter/agents/codex"

// Binary is where a sandbox image has the program: a link into the package, whose inner directory
// is named for the machine.
const Binary = Directory + "/codex"

// PromptDir is where commands are, below the agent's home, and Arguments their placeholder for what
// follows the command's name.
const (
	PromptDir = "prompts"
	Arguments = "$ARGUMENTS"
)

// The names of the secrets that the agent looks for in its environment.
const (
	SecretKey     = "OPENAI_API_KEY"
	SecretBaseURL = "OPENAI_BASE_URL"
)

// ClientID is the id that Codex stores and reports with the message of a prompt. It names the run, the
// prompt and its author.
func ClientID(runID, promptID, author string) string { return runID + "/" + promptID + "/" + author }

// ParseClientID takes a ClientID apart. Of those of others nothing is known.
func ParseClientID(id string) (runID, promptID, author string) {
	parts := strings.SplitN(id, "/", 3)
	if len(parts) != 3 {
		return "", "", ""
	}
	return parts[0], parts[1], parts[2]
}
