package acpformat

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// Version is that of the Agent Client Protocol.
const Version = 1

// The methods that are spoken here.
const (
	MethodInitialize = "initialize"
	MethodNew        = "session/new"
	MethodLoad       = "session/load"
	MethodResume     = "session/resume"
	MethodModel      = "session/set_model"
	MethodPrompt     = "session/prompt"
	MethodCancel     = "session/cancel"
	MethodUpdate     = "session/update"
	MethodPermission = "session/request_permission"
)

// The kinds of update.
const (
	UpdateText     = "agent_message_chunk"
	UpdateThought  = "agent_thought_chunk"
	UpdateUser     = "user_message_chunk"
	updateCall     = "tool_call"
	updateCallMore = "tool_call_update"
	updateUsage    = "usage_update"
	updatePlan     = "plan"
)

// Params are those of an update, and of a request for permission.
type Params struct {
	SessionID string          `json:"sessionId"`
	Update    update          `json:"update"`
	ToolCall  update          `json:"toolCall"`
	Options   json.RawMessage `json:"options"`
}

// update is what the agent says of its work. Content is that of a message, or the list of what a
// call has brought.
type update struct {
	Kind      string          `json:"sessionUpdate"`
	Content   json.RawMessage `json:"content"`
	MessageID string          `json:"messageId"`
	toolCall
	Entries []planEntry `json:"entries"`
	Cost    *struct {
		Amount float64 `json:"amount"`
	} `json:"cost"`
}

// IsCall reports whether the update is about a call of a tool.
func (u update) IsCall() bool { return u.Kind == updateCall || u.Kind == updateCallMore }

// planEntry is a line of a plan.
type planEntry struct {
	Content string `json:"content"`
	Status  string `json:"status"`
}

// toolCall is a call as far as the agent has reported it: what an update leaves out is unchanged.
type toolCall struct {
	ID        string          `json:"toolCallId"`
	Title     string          `json:"title"`
	ToolKind  string          `json:"kind"`
	Status    string          `json:"status"`
	Input     json.RawMessage `json:"rawInput"`
	Output    json.RawMessage `json:"rawOutput"`
	Locations json.RawMessage `json:"locations"`
	Meta      json.RawMessage `json:"_meta"`
}

// Option is an answer to a request for permission.
type Option struct {
	ID   string `json:"optionId"`
	Name string `json:"name"`
	Kind string `json:"kind"`
}

// AnswerData is the content of the line that Answer makes for a bridge.
type AnswerData struct {
	// Option is the one that was chosen; empty withdraws the question.
	Option  string `json:"option,omitempty"`
	Allowed bool   `json:"allowed"`
}

// Choose returns the option of the first kind that there is. Where several last, the first does so
// for the session and the last for ever.
func Choose(options []Option, kinds []string, forEver bool) (string, bool) {
	for _, kind := range kinds {
		var found []string
		for _, o := range options {
			if o.Kind == kind && o.ID != "" {
				found = append(found, o.ID)
			}
		}
		switch {
		case len(found) == 0:
		case forEver:
			return found[len(found)-1], true
		default:
			return found[0], true
		}
	}
	return "", false
}

// Stopped is the outcome that a stop reason means.
func Stopped(reason string) (session.Outcome, string) {
	switch reason {
	case "end_turn":
		return session.OutcomeCompleted, ""
	case "cancelled":
		return session.OutcomeCancelled, session.ReasonAborted
	case "":
		return session.OutcomeFailed, "the agent does not say how the turn ended"
	}
	return session.OutcomeFailed, reason
}

// Usage is what a turn has used, as far as agents agree on how to say it.
func Usage(result json.RawMessage) usage.Usage {
	var r struct {
		Usage struct {
			Input  int64 `json:"inputTokens"`
			Output int64 `json:"outputTokens"`
			Read   int64 `json:"cachedReadTokens"`
			Write  int64 `json:"cachedWriteTokens"`
			// Thoughts are output tokens in addition to the others.
			Thoughts int64 `json:"thoughtTokens"`
		} `json:"usage"`
		Meta struct {
			Quota struct {
				Count struct {
					Input  int64 `json:"input_tokens"`
					Output int64 `json:"output_tokens"`
				} `json:"token_count"`
			} `json:"quota"`
		} `json:"_meta"`
	}
	Decode(result, &r)
	u := usage.Usage{
		InputTokens:  r.Usage.Input + r.Usage.Read + r.Usage.Write,
		OutputTokens: r.Usage.Output + r.Usage.Thoughts,
	}
	if u.InputTokens == 0 && u.OutputTokens == 0 {
		u.InputTokens, u.OutputTokens = r.Meta.Quota.Count.Input, r.Meta.Quota.Count.Output
	}
	return u
}

// Decode reads as much of a JSON value as fits v: a field of another type is left out. It reports
// whether raw was JSON of the right kind at all.
func Decode(raw []byte, v any) bool {
	err := json.Unmarshal(raw, v)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return wrong.Field != ""
	}
	return err == nil
}

// Encode encodes a message or a part of one.
func Encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("acp: encode %T: %v", v, err)) // made of strings, times, and JSON that was read
	}
	return b
}
