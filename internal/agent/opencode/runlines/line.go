package runlines

import (
	"encoding/json"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
)

// Line is a line of the output. It has either a part or an error.
type Line struct {
	SessionID string
	At        time.Time
	Part      *opencodeformat.Part
	Error     *opencodeformat.NativeError
}

// Read decodes a line and reports whether it has this form. A line without a time gets the given
// one.
func Read(data []byte, at time.Time) (Line, bool) {
	var l struct {
		Timestamp opencodeformat.Stamp        `json:"timestamp"`
		SessionID string                      `json:"sessionID"`
		Part      *opencodeformat.Part        `json:"part"`
		Error     *opencodeformat.NativeError `json:"error"`
	}
	if json.Unmarshal(data, &l) != nil || l.SessionID == "" {
		return Line{}, false
	}
	if l.Error == nil && (l.Part == nil || l.Part.ID == "" || l.Part.MessageID == "") {
		return Line{}, false
	}
	if l.Timestamp > 0 {
		at = l.Timestamp.Time()
	}
	return Line{SessionID: l.SessionID, At: at, Part: l.Part, Error: l.Error}, true
}
