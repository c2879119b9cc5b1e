package cli

import (
	"io"
	"strings"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// answer prints the agent's text in the turns of one prompt, as it arrives.
type answer struct {
	promptID  string
	out       io.Writer
	printable bool   // leave out what could control a terminal
	runID     string // the latest run of the prompt
	blockID   string // the text block that is being printed
	printed   int    // bytes of that block
	any       bool   // something has been printed
	newline   bool   // and it ended in a newline
}

// take reads one event. It returns the prompt when it has ended.
func (a *answer) take(e client.Event) (ended *client.Prompt, err error) {
	switch e.Type {
	case client.EventPrompt:
		data, err := decode[client.PromptData](e)
		if err != nil {
			return nil, err
		}
		if data.Prompt.ID == a.promptID && data.Prompt.Status.Final() {
			return &data.Prompt, nil
		}
		if data.Prompt.ID == a.promptID && data.Prompt.JoinedTo != "" && data.Prompt.Status != client.PromptQueued { // its turn is the other prompt's
			a.runID = data.Prompt.RunID
		}
	case client.EventTurnStart:
		data, err := decode[client.TurnStartData](e)
		if err != nil {
			return nil, err
		}
		if data.PromptID == a.promptID {
			a.runID = data.RunID
		}
	case client.EventBlockStart, client.EventBlockComplete:
		data, err := decode[client.BlockData](e)
		if err != nil {
			return nil, err
		}
		if a.isOwn(e) && data.Block.Type == client.AssistantText {
			return nil, a.block(data.Block)
		}
	case client.EventTextDelta:
		data, err := decode[client.TextDeltaData](e)
		if err != nil {
			return nil, err
		}
		if a.isOwn(e) && data.BlockID == a.blockID {
			return nil, a.print(data.Delta)
		}
	}
	return nil, nil
}

// isOwn reports whether an event belongs to the main conversation of the prompt's run.
func (a *answer) isOwn(e client.Event) bool {
	return a.runID != "" && e.RunID == a.runID && (e.ConversationID == client.MainConversation || e.ConversationID == "")
}

// block prints the part of a block that has not been printed.
func (a *answer) block(b client.Block) error {
	if b.ID != a.blockID {
		if err := a.finish(); err != nil {
			return err
		}
		a.blockID, a.printed = b.ID, 0
	}
	if a.printed < len(b.Content) {
		return a.print(b.Content[a.printed:])
	}
	return nil
}

func (a *answer) print(text string) error {
	a.printed += len(text)
	if a.printable {
		text = terminal.Printable(text)
	}
	if text == "" {
		return nil
	}
	a.any, a.newline = true, strings.HasSuffix(text, "\n")
	_, err := io.WriteString(a.out, text)
	return err
}

// finish ends the last line.
func (a *answer) finish() error {
	if !a.any || a.newline {
		return nil
	}
	a.newline = true
	_, err := io.WriteString(a.out, "\n")
	return err
}
