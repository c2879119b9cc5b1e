package acpbridge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/acpclient"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// notebook is the transcript of a session, with the records of earlier bridges.
type notebook struct {
	*acpclient.Notebook
	runs   map[string]*pastRun
	blocks []conversation.Block
}

// pastRun is a run recorded in the notebook.
type pastRun struct {
	ended    bool
	end      acpformat.EndNote
	answered bool // the agent had begun to work on it
}

// openNotebook opens the notebook at name, or creates it.
func openNotebook(name string) (*notebook, error) {
	open, past, err := acpclient.OpenNotebook(name)
	if err != nil {
		return nil, err
	}
	nb := &notebook{Notebook: open, runs: map[string]*pastRun{}}
	nb.read(past)
	nb.blocks = acpformat.Recorded([]transcript.File{{Path: name, Data: past}}).Threads[0].Blocks
	return nb, nil
}

// read reads the records of earlier bridges.
func (nb *notebook) read(past []byte) {
	var run *pastRun
	for n := range acpclient.Notes(past) {
		switch n.Type {
		case stdio.NoteSession:
			nb.Session = n.ID
		case stdio.NoteRun:
			run = &pastRun{}
			nb.runs[n.RunID] = run
		case acpformat.NoteBlock:
			var b conversation.Block
			if run != nil && acpformat.Decode(n.Data, &b) && b.Type != conversation.UserMessage && b.Type != conversation.System {
				run.answered = true
			}
		case acpformat.NoteEnd:
			if past := nb.runs[n.RunID]; past != nil {
				past.ended = acpformat.Decode(n.Data, &past.end)
			}
		}
	}
}

// maxReplayed bounds how much of the earlier conversation is sent to an agent again. The newest
// part is kept.
const maxReplayed = 200 << 10

// summary returns the earlier conversation for an agent that has lost it; empty if there was none.
func (nb *notebook) summary() string {
	var lines []string
	size := 0
	for _, b := range slices.Backward(nb.blocks) {
		var line string
		switch b.Type {
		case conversation.UserMessage:
			line = "User: " + b.Content
		case conversation.AssistantText:
			line = "You: " + b.Content
		case conversation.ToolUse:
			line = fmt.Sprintf("You called the tool %s: %s", b.Name, acpformat.Bounded(string(b.Input)))
		case conversation.ToolResult:
			line = "It gave: " + acpformat.Bounded(string(b.Output))
		default:
			continue
		}
		if size += len(line); size > maxReplayed {
			break
		}
		lines = append(lines, line)
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n\n")
}
