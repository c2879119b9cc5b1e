package opencode

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
)

// The parts of the agent's own records that become blocks. Fields that may have an unexpected form
// stay raw, so that they do not invalidate the rest.

// envelope is an event of the server.
type envelope struct {
	Type       string          `json:"type"`
	Properties json.RawMessage `json:"properties"`
}

func isSummary(m *opencodeformat.Message) bool { return string(m.Summary) == "true" }

// createdAt returns when the message was created.
func createdAt(m *opencodeformat.Message) time.Time { return m.Time.Created.Time() }

// modelOf returns the display name of the message's model.
func modelOf(m *opencodeformat.Message) string {
	if m.ProviderID == "" || m.ModelID == "" {
		return m.ModelID
	}
	return m.ProviderID + "/" + m.ModelID
}

// timedOutError returns the error for an answer that the bridge aborted.
func timedOutError(message string) *opencodeformat.NativeError {
	data, err := json.Marshal(map[string]string{"message": message})
	if err != nil {
		data = nil // strings can always be encoded
	}
	return &opencodeformat.NativeError{Name: "GaveUp", Data: data}
}

// The types of part that become blocks.
const (
	partReasoning  = "reasoning"
	partTool       = "tool"
	partStepStart  = "step-start" // begins an attempt at the model; after a failure, a message has another
	partStepFinish = "step-finish"
)

// isEnded reports whether the text of a part is complete.
func isEnded(p *opencodeformat.Part) bool { return p.Time != nil && p.Time.End != 0 }

// The states of a call.
const (
	callPending   = "pending"
	callRunning   = "running"
	callCompleted = "completed"
	callError     = "error"
)

// callAborted is the error of an aborted call in releases that mark it in no other way.
const callAborted = "Tool execution aborted"

// taskAborted is the error of an aborted call of a subagent.
const taskAborted = "Task cancelled"

// toolMetadata is the data that tools return in addition to their output.
type toolMetadata struct {
	Output      json.RawMessage `json:"output"`
	Interrupted json.RawMessage `json:"interrupted"`
	SessionID   json.RawMessage `json:"sessionId"`
}

func metadataOf(s *opencodeformat.ToolState) toolMetadata {
	var m toolMetadata
	if len(s.Metadata) > 0 {
		_ = json.Unmarshal(s.Metadata, &m) // metadata of another form is ignored
	}
	return m
}

// inputOf returns the input of the call, or nothing until it is known.
func inputOf(s *opencodeformat.ToolState) json.RawMessage {
	if s.Status == callPending || string(s.Input) == "null" {
		return nil
	}
	return s.Input
}

// rawText returns the string in raw, or "" if it is not a string.
func rawText(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// tokens are the token counts of one answer of the model.
type tokens struct {
	Input     float64 `json:"input"`
	Output    float64 `json:"output"`
	Reasoning float64 `json:"reasoning"`
	Cache     struct {
		Read  float64 `json:"read"`
		Write float64 `json:"write"`
	} `json:"cache"`
}

func tokensOf(p *opencodeformat.Part) tokens {
	var t tokens
	_ = json.Unmarshal(p.Tokens, &t) // ignore tokens of another form
	return t
}

func costOf(p *opencodeformat.Part) float64 {
	n, err := strconv.ParseFloat(string(p.Cost), 64)
	if err != nil || math.IsInf(n, 0) || math.IsNaN(n) || n < 0 {
		return 0
	}
	return n
}
