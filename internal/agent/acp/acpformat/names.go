package acpformat

import (
	"path"
)

// Name is the agent's name in the API.
const Name = "acp"

// Command is the runner subcommand that runs the bridge.
const Command = "acp-bridge"

// Environment variables of a profile that configure the agent.
const (
	// EnvCommand is the command line that starts the agent: a JSON array of words, or a line for
	// the shell, such as "opencode acp". If the profile has none, the stored secret of this name is
	// used.
	EnvCommand = "OVERWINTER_ACP_COMMAND"
	// EnvTranscripts lists glob patterns of the files in which the agent keeps its memory, relative
	// to its home and separated by colons. With these files the agent can resume in a new sandbox;
	// otherwise the bridge sends it the earlier conversation again. Only the profile can set it.
	EnvTranscripts = "OVERWINTER_ACP_TRANSCRIPTS"
)

// Options of the bridge, passed as environment variables.
const (
	EnvServers      = "OVERWINTER_ACP_SERVERS"      // a JSON list for session/new
	EnvInstructions = "OVERWINTER_ACP_INSTRUCTIONS" // sent with the first prompt
)

// NotebookPath returns the path of a session's transcript.
func NotebookPath(home, id string) string {
	return path.Join(home, ".overwinter", Name, id+".jsonl")
}
