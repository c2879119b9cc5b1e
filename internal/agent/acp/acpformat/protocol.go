package acpformat

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// Version is the version of the Agent Client Protocol.
const Version = 1

// The protocol methods in use.
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

// Params holds the parameters of an update and of a permission request.
type Params struct {
	SessionID string          `json:"sessionId"`
	Update    update          `json:"update"`
	ToolCall  update          `json:"toolCall"`
	Options   json.RawMessage `json:"options"`
}

// update is one session update of the agent. Content is the content of a message, or a list with
// the content of a tool call.
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

// IsCall reports whether the update is about a tool call.
func (u update) IsCall() bool { return u.Kind == updateCall || u.Kind == updateCallMore }

// planEntry is a line of a plan.
type planEntry struct {
	Content string `json:"content"`
	Status  string `json:"status"`
}

// toolCall is a tool call as reported so far. A field that an update omits is unchanged.
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

// Option is an answer to a permission request.
type Option struct {
	ID   string `json:"optionId"`
	Name string `json:"name"`
	Kind string `json:"kind"`
}

// AnswerData is the data of the line that Answer returns for a bridge.
type AnswerData struct {
	// Option is the chosen option. Empty withdraws the question.
	Option  string `json:"option,omitempty"`
	Allowed bool   `json:"allowed"`
}

// Choose returns an option of the first of kinds that is offered. Among several options of that
// kind, the first applies to the session and the last forever.
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

// Stopped returns the outcome for a stop reason.
func Stopped(reason string) (session.Outcome, string) {
	switch reason {
	case "end_turn":
		return session.OutcomeCompleted, ""
	case "cancelled":
		return session.OutcomeCancelled, session.ReasonAborted
	case "":
		return session.OutcomeFailed, "the agent did not report how the turn ended"
	}
	return session.OutcomeFailed, reason
}

// Usage returns the usage of a turn, from the fields that agents agree on.
func Usage(result json.RawMessage) usage.Usage {
	var r struct {
		Usage struct {
			Input  int64 `json:"inputTokens"`
			Output int64 `json:"outputTokens"`
			Read   int64 `json:"cachedReadTokens"`
			Write  int64 `json:"cachedWriteTokens"`
			// Thoughts counts output tokens in addition to the others.
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

// Decode decodes as much of a JSON value as fits v and skips fields of another type. It reports
// whether raw is JSON of the right kind.
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
		panic(fmt.Sprintf("acp: encode %T: %v", v, err)) // v consists of strings, times and JSON that was decoded before
	}
	return b
}
