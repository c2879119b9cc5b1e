package geminiformat

import (
	"path"
)

// Command is the word that calls the bridge.
const Command = "gemini-bridge"

// SecretVertex is a secret that the program looks for in its environment: "true" means that it reaches
// the model by way of Vertex AI.
const SecretVertex = "GOOGLE_GENAI_USE_VERTEXAI"

// NotebookPath is where the transcript of a session is kept.
func NotebookPath(home, id string) string {
	return path.Join(home, ".gemini", NotebookDir, id+".jsonl")
}
