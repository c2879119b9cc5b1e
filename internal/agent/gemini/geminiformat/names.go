package geminiformat

import (
	"path"

	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
)

// Command is the word that calls the bridge.
const Command = "gemini-bridge"

// SecretVertex is a secret that the program looks for in its environment: "true" means that it reaches
// the model by way of Vertex AI.
const SecretVertex = "GOOGLE_GENAI_USE_VERTEXAI"

// SessionID matches an id that may name the journal of a session and be part of a glob pattern.
var SessionID = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)

// JournalPath is where the transcript of a session is kept.
func JournalPath(home, id string) string { return path.Join(home, ".gemini", JournalDir, id+".jsonl") }
