package geminiformat

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// The notes of this bridge, in addition to the common ones. All of them except stdio.NoteKnown are
// also written to the notebook, so that the transcript has the content of the stream.
const (
	// NotePrompt begins a turn; data is PromptNote.
	NotePrompt stdio.NoteType = "prompt"
	// NoteChat is a line that the agent has added to a chat file, if it contains anything new. ID
	// is the subagent to which the file belongs, or empty.
	NoteChat stdio.NoteType = "chat"
	// NoteText is the complete text of the answer whose record follows, if the record omits a part
	// of it. Data is a string.
	NoteText stdio.NoteType = "text"
	// NoteTool reports that the call ID has begun, or waits for permission. Data is ToolNote.
	NoteTool stdio.NoteType = "tool"
	// NoteAnswered reports that the question about the call ID has been answered. Data is whether
	// the call may run.
	NoteAnswered stdio.NoteType = "answered"
	// NoteSubagent reports that the subagent ID has begun. Data is SubagentNote.
	NoteSubagent stdio.NoteType = "subagent"
	// NoteInterrupt records that the agent was asked to abort the turn.
	NoteInterrupt stdio.NoteType = "interrupt"
	// NotePartial is the text that the agent had printed but not stored when the turn ended. Data
	// is PartialNote.
	NotePartial stdio.NoteType = "partial"
	// NoteHistory reports that the agent's memory differs from the messages that it has stored so
	// far. Data is HistoryNote.
	NoteHistory stdio.NoteType = "history"
	// NoteLost reports that the agent's memory could not be loaded. Data is Stamp.
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
	// Complete is set if the text is complete, such as the answer of one of the program's own
	// commands.
	Complete bool `json:"complete,omitempty"`
}

// HistoryNote contains the ids of the messages that the agent remembers, in order, and the messages
// among them that were not stored before.
type HistoryNote struct {
	At    time.Time         `json:"at"`
	IDs   []string          `json:"ids"`
	Added []json.RawMessage `json:"added,omitempty"`
}

// EndNote describes how a turn ended.
type EndNote struct {
	At      time.Time       `json:"at"`
	Outcome session.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
	Status  int             `json:"status,omitempty"` // HTTP status with which the model API rejected the key
}

// Data encodes the data of a note.
func Data(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("gemini: encode %T: %v", v, err)) // v consists of strings, times and JSON that was decoded before
	}
	return b
}
