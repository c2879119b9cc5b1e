package gemini

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// The notes of this bridge, in addition to the common ones. All of them but stdio.NoteKnown are
// lines of the journal as well, so that a transcript has what the stream has.
const (
	// noteSession names the agent's session, in ID; data is sessionNote.
	noteSession stdio.NoteType = "session"
	// notePrompt begins a turn; data is promptNote.
	notePrompt stdio.NoteType = "prompt"
	// noteChat is a line that the agent has added to a chat file, as far as it says anything new. ID
	// is the subagent whose file it is, or empty.
	noteChat stdio.NoteType = "chat"
	// noteText is the text of the answer whose record follows, where the record has it with
	// something left out; data is a string.
	noteText stdio.NoteType = "text"
	// noteTool says that the call ID has begun, or waits for permission; data is toolNote.
	noteTool stdio.NoteType = "tool"
	// noteAnswered says that the question about the call ID has been answered; data is whether it
	// may run.
	noteAnswered stdio.NoteType = "answered"
	// noteSubagent says that the subagent ID has begun; data is subagentNote.
	noteSubagent stdio.NoteType = "subagent"
	// noteInterrupt records that the agent was asked to abort the turn.
	noteInterrupt stdio.NoteType = "interrupt"
	// notePartial is what the agent had said at the end of a turn without writing it down; data is
	// partialNote.
	notePartial stdio.NoteType = "partial"
	// noteHistory says that the agent remembers something else than what it wrote down so far; data
	// is historyNote.
	noteHistory stdio.NoteType = "history"
	// noteLost says that the agent's memory could not be loaded; data is stamp.
	noteLost stdio.NoteType = "lost"
	// noteEnd ends a turn; data is endNote.
	noteEnd stdio.NoteType = "end"
)

type stamp struct {
	At time.Time `json:"at"`
}

type sessionNote struct {
	At      time.Time `json:"at"`
	Version string    `json:"version,omitempty"`
	Loaded  bool      `json:"loaded,omitempty"` // it resumed from its memory
}

type promptNote struct {
	At       time.Time `json:"at"`
	PromptID string    `json:"promptId,omitempty"`
	Author   string    `json:"author,omitempty"`
	Content  string    `json:"content"`
}

type toolNote struct {
	At    time.Time `json:"at"`
	Name  string    `json:"name"`
	Title string    `json:"title,omitempty"`
	Asked bool      `json:"asked,omitempty"` // it waits for permission
}

type subagentNote struct {
	At        time.Time `json:"at"`
	ToolUseID string    `json:"toolUseId,omitempty"`
}

type partialNote struct {
	At       time.Time `json:"at"`
	Text     string    `json:"text,omitempty"`
	Thoughts []string  `json:"thoughts,omitempty"`
	// Complete: it was said to its end, as by a command of the program itself.
	Complete bool `json:"complete,omitempty"`
}

// historyNote has the ids of the messages that the agent remembers, in order, and those of them
// that were not written down before.
type historyNote struct {
	At    time.Time         `json:"at"`
	IDs   []string          `json:"ids"`
	Added []json.RawMessage `json:"added,omitempty"`
}

type endNote struct {
	At      time.Time       `json:"at"`
	Outcome session.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
}

// data encodes the data of a note.
func data(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("gemini: encode %T: %v", v, err)) // made of strings, times, and JSON that was read
	}
	return b
}
