package opencodeformat

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// SessionInfo is a session: the main one, or that of a subagent if it has a parent.
type SessionInfo struct {
	ID       string    `json:"id"`
	ParentID string    `json:"parentID"`
	Title    string    `json:"title"`
	Time     StampPair `json:"time"`
	Revert   *Revert   `json:"revert"`
}

// Revert is the first reverted message of a session, or the first reverted part of it. Everything
// that follows is reverted too. Reverted messages are removed with the next prompt.
type Revert struct {
	MessageID string `json:"messageID"`
	PartID    string `json:"partID,omitempty"`
}

// Message is a message without its parts.
type Message struct {
	ID         string          `json:"id"`
	SessionID  string          `json:"sessionID"`
	Role       string          `json:"role"`
	ParentID   string          `json:"parentID"`
	ProviderID string          `json:"providerID"`
	ModelID    string          `json:"modelID"`
	Finish     string          `json:"finish"`
	Time       StampPair       `json:"time"`
	Error      *NativeError    `json:"error"`
	Summary    json.RawMessage `json:"summary"` // true for the message that a compaction wrote
}

// FromUser reports whether the message is a prompt.
func (m *Message) FromUser() bool { return m.Role == "user" }

// Takes reports whether a message is an answer with which the agent accepted a prompt added to its
// turn. The agent answers the newest waiting prompt, and sees the others before it.
func (m *Message) Takes(messageID string) bool { return !m.FromUser() && m.ParentID >= messageID }

// Aborted is the name of the error of an aborted message.
const Aborted = "MessageAbortedError"

// NativeError is an error as OpenCode reports it.
type NativeError struct {
	Name string          `json:"name"`
	Data json.RawMessage `json:"data"`
}

// Words returns the error message, for people.
func (e *NativeError) Words() string {
	var data struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(e.Data, &data) == nil && strings.TrimSpace(data.Message) != "" {
		return Bounded(strings.TrimSpace(data.Message), MaxWords)
	}
	if e.Name != "" {
		return Bounded(e.Name, MaxWords)
	}
	return "the agent failed without a reason"
}

// Failure returns the response of the model API that caused the error, if there was one.
func (e *NativeError) Failure() (status int, url string) {
	var data struct {
		Status   int `json:"statusCode"`
		Metadata struct {
			URL string `json:"url"`
		} `json:"metadata"`
	}
	if json.Unmarshal(e.Data, &data) != nil {
		return 0, ""
	}
	return data.Status, data.Metadata.URL
}

// Part is a piece of a message.
type Part struct {
	ID        string          `json:"id"`
	SessionID string          `json:"sessionID"`
	MessageID string          `json:"messageID"`
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Synthetic bool            `json:"synthetic"`
	Ignored   bool            `json:"ignored"`
	Time      *StampPair      `json:"time"`
	Tool      string          `json:"tool"`
	CallID    string          `json:"callID"`
	State     *ToolState      `json:"state"`
	Cost      json.RawMessage `json:"cost"`
	Tokens    json.RawMessage `json:"tokens"`
}

// The types of part that become blocks.
const (
	PartText = "text"
)

// ToolState is the state of a call.
type ToolState struct {
	Status   string          `json:"status"`
	Input    json.RawMessage `json:"input"`
	Output   string          `json:"output"`
	Error    string          `json:"error"`
	Metadata json.RawMessage `json:"metadata"`
	// Attachments are files in the result of a call.
	Attachments []struct {
		URL string `json:"url"`
	} `json:"attachments"`
}

// Images returns the images in the result of a call.
func (s *ToolState) Images() []conversation.ImageData {
	var out []conversation.ImageData
	for _, a := range s.Attachments {
		if i, ok := conversation.DecodeImage(a.URL); ok && len(out) < conversation.MaxBlockImages {
			out = append(out, i)
		}
	}
	return out
}

// Stamp is a time in milliseconds since 1970; 0 is none.
type Stamp float64

// maxStamp is the last millisecond of the year 9999; later times cannot be encoded.
const maxStamp = 253402300799999

// Time returns the time. For 0 and invalid values it returns the Unix epoch.
func (s Stamp) Time() time.Time {
	if !(s > 0) || s > maxStamp {
		return time.UnixMilli(0).UTC()
	}
	return time.UnixMilli(int64(s)).UTC()
}

// StampPair is the time of a creation or start, and that of a completion or end.
type StampPair struct {
	Created   Stamp `json:"created"`
	Completed Stamp `json:"completed"`
	Start     Stamp `json:"start"`
	End       Stamp `json:"end"`
}

// IdTime returns the time at which the agent created an id. An id contains the low 36 bits of the
// millisecond and twelve bits of a counter; the high bits are taken from a time close to it.
func IdTime(id string, near time.Time) time.Time {
	const span = int64(1) << 36
	low, ok := idMillis(id)
	if !ok {
		return near
	}
	at := near.UnixMilli()
	ms := at - (at & (span - 1)) + low
	switch {
	case ms-at > span/2:
		ms -= span
	case at-ms > span/2:
		ms += span
	}
	if ms < 0 || ms > maxStamp {
		return near
	}
	return time.UnixMilli(ms).UTC()
}

// idMillis returns the time in an id.
func idMillis(id string) (int64, bool) {
	_, rest, ok := strings.Cut(id, "_")
	if !ok || len(rest) < idDigits {
		return 0, false
	}
	n, err := strconv.ParseUint(rest[:idDigits], 16, 64)
	if err != nil {
		return 0, false
	}
	return int64(n >> 12), true
}

// idDigits is the number of hexadecimal digits after the kind in an id.
const idDigits = 12

// MaxWords bounds how much is kept of errors and unparsed lines.
const MaxWords = 4 << 10

// Bounded truncates s to at most most bytes.
func Bounded(s string, most int) string {
	if len(s) <= most {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ToValidUTF8(s[:most], "\uFFFD") + "…"
}

// SessionEvent is the content of an event about a session.
type SessionEvent struct {
	Info SessionInfo `json:"info"`
}
