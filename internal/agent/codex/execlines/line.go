package execlines

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
)

// The types of lines.
const (
	ThreadStarted = "thread.started"
	TurnStarted   = "turn.started"
	ItemStarted   = "item.started"
	ItemUpdated   = "item.updated"
	ItemCompleted = "item.completed"
	Error         = "error"
	TurnCompleted = "turn.completed"
	TurnFailed    = "turn.failed"
)

// Line is a line of the output.
type Line struct {
	Type    string          `json:"type"`
	Thread  string          `json:"thread_id"`
	Raw     json.RawMessage `json:"item"`
	Failure json.RawMessage `json:"error"`
	Message string          `json:"message"`
	Usage   struct {
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
	} `json:"usage"`
}

// Read decodes a line and reports whether it has this form. Lines of the app-server have a method
// or an ID.
func Read(data []byte) (Line, bool) {
	var l struct {
		ID     json.RawMessage `json:"id"`
		Method json.RawMessage `json:"method"`
		Line
	}
	ok := codexformat.Lenient(data, &l) && len(l.ID) == 0 && len(l.Method) == 0
	switch l.Type {
	case ThreadStarted, TurnStarted, ItemStarted, ItemUpdated, ItemCompleted, Error, TurnCompleted, TurnFailed:
		return l.Line, ok
	}
	return Line{}, false
}

// Prefix returns the prefix for the ids of items after a line of type ThreadStarted. The agent
// numbers items from 0 in every process, and several processes may continue one thread.
func (l Line) Prefix(at time.Time) string {
	return l.Thread + "/" + strconv.FormatInt(at.UnixMilli(), 36) + "/"
}

// Item returns the item of a line, with an id that is unique in the thread.
func (l Line) Item(prefix string) (codexformat.Item, bool) {
	it, ok := codexformat.DecodeItem(l.Raw)
	it.ID = prefix + it.ID
	return it, ok
}

// Retries reports whether a line of type Error announces a retry.
func (l Line) Retries() bool { return strings.HasPrefix(l.Message, "Reconnecting") }

// Verdict returns how a line of type TurnCompleted or TurnFailed ends the turn.
func (l Line) Verdict() codexformat.Verdict {
	if l.Type == TurnFailed {
		return codexformat.Verdict{Status: codexformat.Failed, Message: codexformat.Problem(l.Failure)}
	}
	return codexformat.Verdict{Status: codexformat.Completed}
}
