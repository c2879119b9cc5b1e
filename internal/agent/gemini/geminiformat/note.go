package geminiformat

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// The notes of this bridge, in addition to the common ones. All of them but stdio.NoteKnown are
// lines of the notebook as well, so that a transcript has what the stream has.
const (
	// NotePrompt begins a turn; data is PromptNote.
	NotePrompt stdio.NoteType = "prompt"
	// NoteChat is a line that the agent has added to a chat file, as far as it says anything new. ID
	// is the subagent whose file it is, or empty.
	NoteChat stdio.NoteType = "chat"
	// NoteText is the text of the answer whose record follows, where the record has it with
	// something left out; data is a string.
	NoteText stdio.NoteType = "text"
	// NoteTool says that the call ID has begun, or waits for permission; data is ToolNote.
	NoteTool stdio.NoteType = "tool"
	// NoteAnswered says that the question about the call ID has been answered; data is whether it
	// may run.
	NoteAnswered stdio.NoteType = "answered"
	// NoteSubagent says that the subagent ID has begun; data is SubagentNote.
	NoteSubagent stdio.NoteType = "subagent"
	// NoteInterrupt records that the agent was asked to abort the turn.
	NoteInterrupt stdio.NoteType = "interrupt"
	// NotePartial is what the agent had said at the end of a turn without writing it down; data is
	// PartialNote.
	NotePartial stdio.NoteType = "partial"
	// NoteHistory says that the agent remembers something else than what it wrote down so far; data
	// is HistoryNote.
	NoteHistory stdio.NoteType = "history"
	// NoteLost says that the agent's memory could not be loaded; data is Stamp.
	NoteLost stdio.NoteType = "lost"
	// NoteEnd ends a turn; data is EndNote.
	NoteEnd stdio.NoteType = "end"
)

// Stamp is the data of a note that has only its time.
type Stamp struct {
	At time.Time `json:"at"`
}

// PromptNote is a prompt as it was sent to the agent.
type PromptNote struct {
	At       time.Time `json:"at"`
	PromptID string    `json:"promptId,omitempty"`
	Author   string    `json:"author,omitempty"`
	Content  string    `json:"content"`
}

// ToolNote is a call of a tool that has begun.
type ToolNote struct {
	At    time.Time `json:"at"`
	Name  string    `json:"name"`
	Title string    `json:"title,omitempty"`
	Asked bool      `json:"asked,omitempty"` // it waits for permission
}

// SubagentNote names the call that a subagent works for.
type SubagentNote struct {
	At        time.Time `json:"at"`
	ToolUseID string    `json:"toolUseId,omitempty"`
}

// PartialNote is the text of an answer so far.
type PartialNote struct {
	At       time.Time `json:"at"`
	Text     string    `json:"text,omitempty"`
	Thoughts []string  `json:"thoughts,omitempty"`
	// Complete: it was said to its end, as by a command of the program itself.
	Complete bool `json:"complete,omitempty"`
}

// HistoryNote has the ids of the messages that the agent remembers, in order, and those of them
// that were not written down before.
type HistoryNote struct {
	At    time.Time         `json:"at"`
	IDs   []string          `json:"ids"`
	Added []json.RawMessage `json:"added,omitempty"`
}

// EndNote is how a turn ended.
type EndNote struct {
	At      time.Time       `json:"at"`
	Outcome session.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
	Status  int             `json:"status,omitempty"` // with which the model's server refused the key
}

// Data encodes the data of a note.
func Data(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("gemini: encode %T: %v", v, err)) // made of strings, times, and JSON that was read
	}
	return b
}
