package geminiformat

import (
	"path"
)

// Command is the runner subcommand that runs the bridge.
const Command = "gemini-bridge"

// SecretVertex is a secret that the program reads from its environment: "true" means that it uses
// the model through Vertex AI.
const SecretVertex = "GOOGLE_GENAI_USE_VERTEXAI"

// NotebookPath returns the path of a session's transcript.
func NotebookPath(home, id string) string {
	return path.Join(home, ".gemini", NotebookDir, id+".jsonl")
}
