package codexformat

import (
	"strings"
)

// Command is the runner subcommand that runs the bridge.
const Command = "codex-bridge"

// Version is the pinned version of Codex.
const Version = "0.169.0"

// Provider is the model provider of every thread in a sandbox. The built-in one requires a login
// instead of a key.
const Provider = "overwinter"

// Directory is the directory of a sandbox image in which the agent is installed.
const Directory = "/overwinter/agents/codex"

// Binary is the path of the program in a sandbox image: a link into the package, which has an inner
// directory named for the architecture.
const Binary = Directory + "/codex"

// PromptDir is the directory of custom commands, below the agent's home. Arguments is their
// placeholder for the text after the command's name.
const (
	PromptDir = "prompts"
	Arguments = "$ARGUMENTS"
)

// The names of the secrets that the agent reads from its environment.
const (
	SecretKey     = "OPENAI_API_KEY"
	SecretBaseURL = "OPENAI_BASE_URL"
)

// ClientID returns the id that Codex stores and reports with the message of a prompt. It contains
// the run, the prompt and its author.
func ClientID(runID, promptID, author string) string { return runID + "/" + promptID + "/" + author }

// ParseClientID splits a ClientID. It returns nothing for ids of other clients.
func ParseClientID(id string) (runID, promptID, author string) {
	parts := strings.SplitN(id, "/", 3)
	if len(parts) != 3 {
		return "", "", ""
	}
	return parts[0], parts[1], parts[2]
}
