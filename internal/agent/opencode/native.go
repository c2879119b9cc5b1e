package opencode

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
)

// The agent's own records, as far as blocks are made of them. What may have another form than the
// one that is wanted stays raw, so that it spoils nothing else.

// envelope is an event of the server.
type envelope struct {
	Type       string          `json:"type"`
	Properties json.RawMessage `json:"properties"`
}

// sessionInfo is a session: the main one, or with a parent that of a subagent.
type sessionInfo struct {
	ID       string    `json:"id"`
	ParentID string    `json:"parentID"`
	Title    string    `json:"title"`
	Time     stampPair `json:"time"`
	Revert   *revert   `json:"revert"`
}

// revert is the point to which a session is reverted: the message, or only what follows a part of
// it. What is reverted is removed with the next prompt.
type revert struct {
	MessageID string `json:"messageID"`
	PartID    string `json:"partID,omitempty"`
}

// message is a message without its parts.
type message struct {
	ID         string          `json:"id"`
	SessionID  string          `json:"sessionID"`
	Role       string          `json:"role"`
	ParentID   string          `json:"parentID"`
	ProviderID string          `json:"providerID"`
	ModelID    string          `json:"modelID"`
	Finish     string          `json:"finish"`
	Time       stampPair       `json:"time"`
	Error      *nativeError    `json:"error"`
	Summary    json.RawMessage `json:"summary"` // true for the message that a compaction wrote
}

func (m *message) isSummary() bool { return string(m.Summary) == "true" }

func (m *message) fromUser() bool { return m.Role == "user" }

// created is when the message was begun.
func (m *message) created() time.Time { return m.Time.Created.time() }

// model is the message's model as people name it.
func (m *message) model() string {
	if m.ProviderID == "" || m.ModelID == "" {
		return m.ModelID
	}
	return m.ProviderID + "/" + m.ModelID
}

// aborted is the name of the error of an aborted message.
const aborted = "MessageAbortedError"

type nativeError struct {
	Name string          `json:"name"`
	Data json.RawMessage `json:"data"`
}

// gaveUp is the error of an answer that the bridge gave up.
func gaveUp(message string) *nativeError {
	data, err := json.Marshal(map[string]string{"message": message})
	if err != nil {
		data = nil // strings always encode
	}
	return &nativeError{Name: "GaveUp", Data: data}
}

// words are what went wrong, for people.
func (e *nativeError) words() string {
	var data struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(e.Data, &data) == nil && strings.TrimSpace(data.Message) != "" {
		return bounded(strings.TrimSpace(data.Message), maxWords)
	}
	if e.Name != "" {
		return bounded(e.Name, maxWords)
	}
	return "the agent failed without a reason"
}

// part is a piece of a message.
type part struct {
	ID        string          `json:"id"`
	SessionID string          `json:"sessionID"`
	MessageID string          `json:"messageID"`
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Synthetic bool            `json:"synthetic"`
	Ignored   bool            `json:"ignored"`
	Time      *stampPair      `json:"time"`
	Tool      string          `json:"tool"`
	CallID    string          `json:"callID"`
	State     *toolState      `json:"state"`
	Cost      json.RawMessage `json:"cost"`
	Tokens    json.RawMessage `json:"tokens"`
}

// The types of part that blocks are made of.
const (
	partText       = "text"
	partReasoning  = "reasoning"
	partTool       = "tool"
	partStepStart  = "step-start" // of an attempt at the model; a message has another after a failure
	partStepFinish = "step-finish"
)

// ended reports whether the text of a part is whole.
func (p *part) ended() bool { return p.Time != nil && p.Time.End != 0 }

// toolState is how far a call has come.
type toolState struct {
	Status   string          `json:"status"`
	Input    json.RawMessage `json:"input"`
	Output   string          `json:"output"`
	Error    string          `json:"error"`
	Metadata json.RawMessage `json:"metadata"`
}

// The states of a call.
const (
	callPending   = "pending"
	callRunning   = "running"
	callCompleted = "completed"
	callError     = "error"
)

// callAborted is the error of an aborted call, in releases that do not mark it otherwise.
const callAborted = "Tool execution aborted"

// taskAborted is the error of an aborted call of a subagent.
const taskAborted = "Task cancelled"

// toolMetadata is what tools return in addition to their output.
type toolMetadata struct {
	Output      json.RawMessage `json:"output"`
	Interrupted json.RawMessage `json:"interrupted"`
	SessionID   json.RawMessage `json:"sessionId"`
}

func (s *toolState) metadata() toolMetadata {
	var m toolMetadata
	if len(s.Metadata) > 0 {
		_ = json.Unmarshal(s.Metadata, &m) // metadata of another form is ignored
	}
	return m
}

// input is the input of the call; nothing until it is known.
func (s *toolState) input() json.RawMessage {
	if s.Status == callPending || string(s.Input) == "null" {
		return nil
	}
	return s.Input
}

// rawText is the string that raw is, or nothing.
func rawText(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// tokens are those of one answer of the model.
type tokens struct {
	Input     float64 `json:"input"`
	Output    float64 `json:"output"`
	Reasoning float64 `json:"reasoning"`
	Cache     struct {
		Read  float64 `json:"read"`
		Write float64 `json:"write"`
	} `json:"cache"`
}

func (p *part) tokens() tokens {
	var t tokens
	_ = json.Unmarshal(p.Tokens, &t) // tokens of another form count for nothing
	return t
}

func (p *part) cost() float64 {
	n, err := strconv.ParseFloat(string(p.Cost), 64)
	if err != nil || math.IsInf(n, 0) || math.IsNaN(n) || n < 0 {
		return 0
	}
	return n
}

// stamp is a time in milliseconds since 1970; 0 is none.
type stamp float64

// maxStamp is the last millisecond of the year 9999; later times cannot be encoded.
const maxStamp = 253402300799999

func (s stamp) time() time.Time {
	if !(s > 0) || s > maxStamp {
		return time.UnixMilli(0).UTC()
	}
	return time.UnixMilli(int64(s)).UTC()
}

type stampPair struct {
	Created   stamp `json:"created"`
	Completed stamp `json:"completed"`
	Start     stamp `json:"start"`
	End       stamp `json:"end"`
}

// idTime is when an id of the agent was made. An id holds the low 36 bits of the millisecond and
// twelve bits of a counter; the rest is that of a time near by.
func idTime(id string, near time.Time) time.Time {
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

// idMillis is the time in an id.
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

// idDigits is how many hexadecimal digits follow the kind in an id.
const idDigits = 12

// maxWords bounds what is kept of errors and of lines that are not understood.
const maxWords = 4 << 10

// bounded is s, or its beginning.
func bounded(s string, most int) string {
	if len(s) <= most {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ToValidUTF8(s[:most], "\uFFFD") + "…"
}
