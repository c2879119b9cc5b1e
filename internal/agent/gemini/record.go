package gemini

import (
	"time"
)

// The types of record that a chat file has blocks for. There are others, such as info.
const (
	errorRecord   = "error"
	warningRecord = "warning"
)

// when reads a time of the agent, or gives another.
func when(s string, other time.Time) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return other
	}
	return t.UTC()
}
