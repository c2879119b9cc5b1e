// Package bridged is what the adapters of agents with a bridge share: what a launch needs, and the
// commands that they write to the bridge's stdin.
package bridged

import (
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
)

// grace is how long a bridge may take to abort a turn: the agent stops its tools and writes its
// transcript first.
const grace = 10 * time.Second

// Validate checks what every launch of the agent with that title needs.
func Validate(title string, in agent.LaunchInput) error {
	switch {
	case !stdio.SessionID.MatchString(in.SessionID):
		return fmt.Errorf("launch %s: %q cannot name a session's files", title, in.SessionID)
	case in.Home == "" || in.Workspace == "":
		return fmt.Errorf("launch %s: home and workspace are needed", title)
	}
	return nil
}

// Prompt returns the line that delivers a prompt to the bridge of the agent with that title. Times have
// milliseconds, as agents' own have.
func Prompt(title string, in agent.PromptInput) ([]byte, error) {
	if in.RunID == "" {
		return nil, fmt.Errorf("prompt %s: no run id", title)
	}
	var images []stdio.Image
	for _, i := range in.Images {
		images = append(images, stdio.Image{Path: i.Path, MediaType: i.MediaType})
	}
	reminder := ""
	if in.Note != "" {
		reminder = stdio.Reminder(in.Note)
	}
	return stdio.Command{
		Type: stdio.Prompt, Reminder: reminder, Images: images, RunID: in.RunID, PromptID: in.PromptID, Content: in.Content, Author: in.Author,
		At: in.At.UTC().Truncate(time.Millisecond),
	}.Encode()
}

// Steer returns the line that gives the running turn of the agent with that title a prompt.
func Steer(title string, in agent.PromptInput) ([]byte, error) {
	if in.RunID == "" || in.PromptID == "" {
		return nil, fmt.Errorf("steer %s: no run id, or no prompt id", title)
	}
	return stdio.Command{
		Type: stdio.Steer, RunID: in.RunID, PromptID: in.PromptID, Content: in.Content, Author: in.Author, At: in.At.UTC().Truncate(time.Millisecond),
	}.Encode()
}

// Interrupt returns how to abort a turn: by a line that names the run, so that one that arrives late
// aborts no other turn.
func Interrupt(runID string) agent.Interrupt {
	line, err := stdio.Command{Type: stdio.Interrupt, RunID: runID}.Encode()
	if err != nil {
		panic(fmt.Sprintf("bridged: encode interrupt: %v", err)) // two strings always encode
	}
	return agent.Interrupt{Stdin: line, Grace: grace}
}
