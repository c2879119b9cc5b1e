// Package bridged contains the code shared by adapters of agents with a bridge: validation of a
// launch, and the commands written to the bridge's stdin.
package bridged

import (
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
)

// grace is how long a bridge may take to abort a turn, because the agent first stops its tools and
// writes its transcript.
const grace = 10 * time.Second

// Validate checks a launch for the values that every agent needs. title names the agent in errors.
func Validate(title string, in agent.LaunchInput) error {
	switch {
	case !stdio.SessionID.MatchString(in.SessionID):
		return fmt.Errorf("launch %s: %q cannot name a session's files", title, in.SessionID)
	case in.Home == "" || in.Workspace == "":
		return fmt.Errorf("launch %s: home and workspace are needed", title)
	}
	return nil
}

// Prompt returns the line that delivers a prompt to a bridge. title names the agent in errors.
// Times are truncated to milliseconds, the precision of the agents.
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

// Steer returns the line that adds a prompt to the running turn. title names the agent in errors.
func Steer(title string, in agent.PromptInput) ([]byte, error) {
	if in.RunID == "" || in.PromptID == "" {
		return nil, fmt.Errorf("steer %s: no run id, or no prompt id", title)
	}
	return stdio.Command{
		Type: stdio.Steer, RunID: in.RunID, PromptID: in.PromptID, Content: in.Content, Author: in.Author, At: in.At.UTC().Truncate(time.Millisecond),
	}.Encode()
}

// Interrupt returns how to abort a turn: with a line that names the run, so that a late line aborts
// no other turn.
func Interrupt(runID string) agent.Interrupt {
	line, err := stdio.Command{Type: stdio.Interrupt, RunID: runID}.Encode()
	if err != nil {
		panic(fmt.Sprintf("bridged: encode interrupt: %v", err)) // two strings can always be encoded
	}
	return agent.Interrupt{Stdin: line, Grace: grace}
}
