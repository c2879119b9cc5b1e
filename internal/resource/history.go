package resource

import "encoding/json"

// HistoryEventJSON is an event of the history of a session's workflow.
type HistoryEventJSON struct {
	RunID string          `json:"runId"`
	Event json.RawMessage `json:"event"` // in the JSON of Temporal's API
}
