package stdio

import (
	"encoding/json"
	"fmt"
	"time"
)

// CommandType is the type of a Command.
type CommandType string

// The commands that every bridge knows.
const (
	Prompt    CommandType = "prompt"    // begin a turn
	Answer    CommandType = "answer"    // answer a question of the agent
	Interrupt CommandType = "interrupt" // abort the turn of RunID
	Steer     CommandType = "steer"     // add a prompt to the running turn of RunID; only for some agents
)

// Command is a line that an adapter writes to its bridge's stdin.
type Command struct {
	Type     CommandType `json:"type"`
	RunID    string      `json:"runId,omitempty"`
	PromptID string      `json:"promptId,omitempty"`
	Content  string      `json:"content,omitempty"` // of a prompt
	Author   string      `json:"author,omitempty"`
	At       time.Time   `json:"at,omitzero"`
	// Images are files in the sandbox that belong to a prompt.
	Images []Image `json:"images,omitempty"`
	// Reminder is sent to the agent with the prompt, in addition to the text that a person wrote;
	// see [Reminder].
	Reminder string `json:"reminder,omitempty"`
	// ID is the agent's id of the question that an answer is for.
	ID string `json:"id,omitempty"`
	// Data is input for the agent in its own format: the result of its request, or options of a
	// prompt.
	Data json.RawMessage `json:"data,omitempty"`
}

// Image is an image that belongs to a prompt.
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
