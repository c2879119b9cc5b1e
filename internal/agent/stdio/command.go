package stdio

import (
	"encoding/json"
	"fmt"
	"time"
)

// CommandType says what a Command wants.
type CommandType string

// The commands that every bridge knows.
const (
	Prompt    CommandType = "prompt"    // begin a turn
	Answer    CommandType = "answer"    // answer what the agent has asked
	Interrupt CommandType = "interrupt" // break the turn of RunID off
	Steer     CommandType = "steer"     // a prompt for the running turn of RunID; for bridges whose agent takes it
)

// Command is a line that an adapter has written to its bridge's stdin.
type Command struct {
	Type     CommandType `json:"type"`
	RunID    string      `json:"runId,omitempty"`
	PromptID string      `json:"promptId,omitempty"`
	Content  string      `json:"content,omitempty"` // of a prompt
	Author   string      `json:"author,omitempty"`
	At       time.Time   `json:"at,omitzero"`
	// Images are files in the sandbox that a prompt comes with.
	Images []Image `json:"images,omitempty"`
	// Reminder is what the agent is given with the prompt in addition to what a person wrote; see [Reminder].
	Reminder string `json:"reminder,omitempty"`
	// ID is what an answer is to, as the agent names it.
	ID string `json:"id,omitempty"`
	// Data is input for the agent in its own format: the result of its request, or options of a
	// prompt.
	Data json.RawMessage `json:"data,omitempty"`
}

// Image is an image that a prompt comes with.
type Image struct {
	Path      string `json:"path"`
	MediaType string `json:"mediaType"`
}

// Encode returns the command as a line.
func (c Command) Encode() ([]byte, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode %s command: %w", c.Type, err)
	}
	return append(b, '\n'), nil
}
