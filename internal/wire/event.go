package wire

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// The types of the events that the store itself writes; those of an agent are in
// package conversation.
const (
	EventStatus    = "status"
	EventPrompt    = "prompt"
	EventQueue     = "queue"
	EventTurnStart = "turn_start"
	EventTurnEnd   = "turn_end"

	EventQuestion         = "question"
	EventQuestionResolved = "question_resolved"

	EventFile = "file"
)

// EventJSON is an event as streams carry it.
type EventJSON struct {
	Seq            int64           `json:"seq"`
	Type           string          `json:"type"`
	SessionID      string          `json:"sessionId"`
	ConversationID string          `json:"conversationId,omitempty"`
	RunID          string          `json:"runId,omitempty"`
	At             Time            `json:"at"`
	Data           json.RawMessage `json:"data"`
}

// Event converts e.
func Event(e eventlog.Event) EventJSON {
	return EventJSON{
		Seq: e.Seq, Type: e.Type, SessionID: e.SessionID, ConversationID: e.ConversationID,
		RunID: e.RunID, At: Time(e.At), Data: e.Data,
	}
}

// StatusData is the data of a status event.
type StatusData struct {
	Status     session.State `json:"status"`
	Reason     string        `json:"reason"`
	Transition int64         `json:"transition"` // its number in the session's life
	Sandbox    *SandboxJSON  `json:"sandbox"`
	Receipt    *ReceiptJSON  `json:"receipt,omitempty"`
}

// PromptData is the data of a prompt event.
type PromptData struct {
	Prompt PromptJSON `json:"prompt"`
}

// QueueData is the data of a queue event: the prompts that are not over, in order.
type QueueData struct {
	Items []QueueItem `json:"items"`
}

// QueueItem is one prompt in a session's queue.
type QueueItem struct {
	PromptID string               `json:"promptId"`
	Ordinal  int64                `json:"ordinal"`
	Status   session.PromptStatus `json:"status"`
}

// TurnStartData is the data of a turn_start event. Attempt is above 1 when another
// worker carries the same run on.
type TurnStartData struct {
	RunID    string `json:"runId"`
	PromptID string `json:"promptId"`
	Attempt  int64  `json:"attempt"`
}

// TurnEndData is the data of a turn_end event.
type TurnEndData struct {
	RunID    string          `json:"runId"`
	PromptID string          `json:"promptId"`
	Outcome  session.Outcome `json:"outcome"`
	Reason   string          `json:"reason,omitempty"`
}

// FileData is the data of a file event. Size is 0 for a file that is gone.
type FileData struct {
	Path   string         `json:"path"` // relative to the workspace
	Change session.Change `json:"change"`
	Size   int64          `json:"size"`
}
