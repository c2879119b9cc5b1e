package acpformat

import (
	"path"
)

// Name is the agent's name in the API.
const Name = "acp"

// Command is the word that calls the bridge.
const Command = "acp-bridge"

// The names of what configures the agent, in the profile's environment.
const (
	// EnvCommand is the command line that starts the agent: a JSON array of words, or a line for the
	// shell, such as "opencode acp". Without one in the profile, it is the stored secret of this name.
	EnvCommand = "OVERWINTER_ACP_COMMAND"
	// EnvTranscripts are glob patterns of the files in which the agent remembers, relative to its
	// home and separated by colons. With them it resumes by itself in a new sandbox; otherwise the
	// bridge sends it the earlier conversation again. Only the profile can set it.
	EnvTranscripts = "OVERWINTER_ACP_TRANSCRIPTS"
)

// Options of the bridge, passed as environment.
const (
	EnvServers      = "OVERWINTER_ACP_SERVERS"      // a JSON list for session/new
	EnvInstructions = "OVERWINTER_ACP_INSTRUCTIONS" // for the first prompt
)

// NotebookPath is where the transcript of a session is kept.
func NotebookPath(home, id string) string {
	return path.Join(home, ".overwinter", Name, id+".jsonl")
}
