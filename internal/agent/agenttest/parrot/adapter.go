package parrot

import (
	"encoding/json"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
)

// Adapter is the parrot.
type Adapter struct{}

// New returns the adapter.
func New() Adapter { return Adapter{} }

// Name is the agent's name in the API.
func (Adapter) Name() string { return "parrot" }

// Describe returns the public description.
func (Adapter) Describe() agent.Description {
	return agent.Description{
		Name: "parrot", Title: "Parrot", Summary: "Repeats the prompt.", Models: []string{"grey"}, Capabilities: []string{},
	}
}

// Launch starts one process for the session. The process reads its memory from its transcript.
func (Adapter) Launch(in agent.LaunchInput) (agent.Launch, error) {
	file := in.Home + "/.parrot/" + in.SessionID + ".jsonl"
	return agent.Launch{
		Argv: []string{"/overwinter/agents/parrot", "--transcript", file}, Dir: in.Workspace,
		Transcripts: []string{file}, Key: in.SessionID,
	}, nil
}

// Prompt is a line of JSON. The agent answers each run once.
func (Adapter) Prompt(in agent.PromptInput) ([]byte, error) {
	line, err := json.Marshal(record{Run: in.RunID, At: in.At.UTC(), Prompt: &prompt{ID: in.PromptID, Author: in.Author, Content: in.Content, Note: in.Note}})
	return append(line, '\n'), err
}

// Interrupt is a signal that ends the turn, not the process.
func (Adapter) Interrupt(string) agent.Interrupt {
	return agent.Interrupt{Signal: "INT", Grace: 5 * time.Second}
}
