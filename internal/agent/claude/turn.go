package claude

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/jsonscan"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/agent/translate"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// Reasons of outcomes that only this agent has.
const (
	// reasonDelivered: the agent had received the prompt before and does not continue it.
	reasonDelivered = "already_delivered"
	reasonNoResult  = "the agent stopped without a result"
)

// maxContinues bounds the requests of a run to continue a prompt that the agent knows.
const maxContinues = 8

// turn is the progress of a run.
type turn struct {
	Model string      `json:"model,omitempty"`
	Usage usage.Usage `json:"usage,omitzero"`
	Total float64     `json:"total,omitempty"` // cost of the agent's session so far, as the agent reports it
	// States and Lifecycle: the agent reports when it is idle, and the state of each message.
	States    bool `json:"states,omitempty"`
	Lifecycle bool `json:"lifecycle,omitempty"`
	Begun     bool `json:"begun,omitempty"` // the agent has reported its configuration
	// The agent has started on the awaited message, repeated it, and worked on it.
	Taken    bool `json:"taken,omitempty"`
	Replayed bool `json:"replayed,omitempty"`
	Worked   bool `json:"worked,omitempty"`
	// Result is the newest result.
	Result      *verdict `json:"result,omitempty"`
	Interrupted bool     `json:"interrupted,omitempty"`
	// Refused is the status with which the model API rejected the key, for which the turn was
	// aborted.
	Refused   int  `json:"refused,omitempty"`
	Continues int  `json:"continues,omitempty"`
	Ended     bool `json:"ended,omitempty"`
}

type verdict struct {
	Outcome session.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
	Status  int             `json:"status,omitempty"` // of the model API's response that failed the turn
}

// awaited returns the uuid of the message that the run waits for.
func (t *translator) awaited() string {
	if t.Run.RunID == "" {
		return ""
	}
	return messageUUID(t.Run.RunID, t.state.Continues)
}

// worked records that the agent is working on the awaited message. Work before it started on that
// message belongs to another message.
func (t *translator) worked() {
	if t.state.Taken || t.state.Replayed {
		t.state.Worked = true
	}
}

// lifecycle reads the new state of a message.
func (t *translator) lifecycle(l record, at time.Time) {
	t.state.Lifecycle = true
	var id, what []byte
	jsonscan.Fields(l.raw, func(key, value []byte) {
		switch string(key) {
		case "command_uuid":
			id = value
		case "state":
			what = value
		}
	})
	own := t.Run.RunID != "" && jsonscan.Is(id, t.awaited())
	switch {
	case jsonscan.Is(what, "started"):
		if message := jsonscan.Text(id); !slices.Contains(t.state.Shown, message) && !slices.Contains(t.state.Owed, message) && t.state.find(message) == nil {
			t.state.Owed = append(t.state.Owed, message)
		}
		t.state.Taken = t.state.Taken || own
		t.steered(jsonscan.Text(id), true)
	case jsonscan.Is(what, "completed") && own:
		t.known(at)
	case jsonscan.Is(what, "cancelled") && own && t.state.Result == nil:
		t.state.Result = &verdict{Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted}
	case jsonscan.Is(what, "completed"):
		t.steered(jsonscan.Text(id), true)
	case jsonscan.Is(what, "cancelled"):
		t.steered(jsonscan.Text(id), false)
	}
}

// steered records whether the agent takes a prompt that was added to the running turn. A prompt
// that the agent begins after an interrupt of the turn is interrupted too.
func (t *translator) steered(id string, taken bool) {
	if p := t.state.Expected.Find(id); p == nil || p.Settled {
		return
	}
	t.Settle(&t.state.Expected, id, taken)
	if taken && t.state.Interrupted {
		t.Out.Input = append(t.Out.Input, interruptLine(interruptID(t.Run.RunID)+"/"+id)...)
	}
}

// known asks the agent to continue if it has only acknowledged the message, because an earlier
// process started on the message and died. It reports whether that was the case.
func (t *translator) known(at time.Time) bool {
	if !t.state.Replayed || t.state.Taken || t.state.Worked || t.state.Result != nil {
		return false
	}
	if t.state.Continues == maxContinues {
		t.end(verdict{Outcome: session.OutcomeUnknown, Reason: reasonDelivered}, at)
		return true
	}
	t.state.Continues++
	t.state.Replayed = false
	t.Out.Input = t.Unacknowledged()
	return true
}

// Unacknowledged returns the request to continue until the agent has acted on it. Its uuid is the
// same each time.
func (t *translator) Unacknowledged() []byte {
	s := &t.state
	if s.Continues == 0 || s.Replayed || s.Taken || s.Worked || s.Result != nil {
		return nil
	}
	input, err := userLine(t.awaited(), "", "Continue.")
	if err != nil {
		panic(fmt.Sprintf("claude: encode a message of ours: %v", err)) // strings can always be encoded
	}
	return input
}

// result reads the result of a stretch of work. A turn with background subagents has several.
func (t *translator) result(l record, at time.Time) {
	var words, errs, subtype, reason, usage, models, total, status []byte
	isError := false
	jsonscan.Fields(l.raw, func(key, value []byte) {
		switch string(key) {
		case "subtype":
			subtype = value
		case "is_error":
			isError = jsonscan.IsTrue(value)
		case "result":
			words = value
		case "errors":
			errs = value
		case "terminal_reason":
			reason = value
		case "usage":
			usage = value
		case "model_usage_since_last_result":
			models = value
		case "total_cost_usd":
			total = value
		case "api_error_status":
			status = value
		}
	})
	t.countUsage(usage, models, total, at)
	if t.Run.RunID != "" && t.state.States && !t.state.Taken && !t.state.Replayed {
		return // belongs to earlier work
	}
	t.worked()
	v := verdict{Outcome: session.OutcomeCompleted}
	switch {
	case strings.HasPrefix(jsonscan.Text(reason), "aborted"):
		v = verdict{Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted}
	case isError, strings.HasPrefix(jsonscan.Text(subtype), "error"):
		v = verdict{Outcome: session.OutcomeFailed, Reason: failure(words, errs, subtype), Status: int(number(status))}
	}
	t.state.Result = &v
	if !t.state.States && !t.background() && !t.state.Expected.Wait() {
		t.end(v, at)
	}
}

// refused aborts the turn if the model API does not accept the key. Otherwise the agent would retry
// the request for minutes.
func (t *translator) refused(status int) {
	if t.Run.RunID == "" || t.state.Refused != 0 || !stdio.RefusesKey(status, "") {
		return
	}
	t.state.Refused = status
	t.Out.Input = append(t.Out.Input, interruptLine("refused-"+t.Run.RunID)...)
}

// failure returns the reason why a turn failed, in the agent's words.
func failure(words, errs, subtype []byte) string {
	reason := strings.TrimSpace(jsonscan.Text(words))
	if reason == "" {
		var all []string
		jsonscan.Elements(errs, func(e []byte) { all = append(all, jsonscan.Text(e)) })
		reason = strings.TrimSpace(strings.Join(all, "; "))
	}
	if reason == "" {
		reason = jsonscan.Text(subtype)
	}
	return bounded([]byte(reason))
}

// background reports whether subagents are still running.
func (t *translator) background() bool {
	return slices.ContainsFunc(t.state.Agents, func(a *subagent) bool { return a.Background })
}

// countUsage adds to the usage of the run.
func (t *translator) countUsage(usage, models, total []byte, at time.Time) {
	sum := number(total)
	if len(models) > 0 {
		jsonscan.Fields(models, func(_, model []byte) { t.use(model) })
	} else {
		t.use(usage)
		t.state.Usage.CostUSD += max(0, sum-t.state.Total)
	}
	t.state.Usage = t.state.Usage.Bounded()
	t.state.Total = sum
	t.Emit(translate.Usage(t.state.Usage, t.state.Model, at))
}

// use adds the tokens, and the cost if it is reported, of one model.
func (t *translator) use(usage []byte) {
	u := &t.state.Usage
	jsonscan.Fields(usage, func(key, value []byte) {
		switch string(key) {
		case "inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens",
			"input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens":
			u.InputTokens += count(value)
		case "outputTokens", "output_tokens":
			u.OutputTokens += count(value)
		case "costUSD":
			u.CostUSD += number(value)
		}
	})
}

// count reads a number of tokens.
func count(raw []byte) int64 { return int64(min(max(number(raw), 0), usage.MaxTurnCount)) }

// idle handles the report that the agent is idle.
func (t *translator) idle(at time.Time) {
	switch {
	case t.known(at):
	case t.state.Expected.Wait(): // the agent is about to read the prompt
	case t.state.Result != nil:
		t.end(*t.state.Result, at)
	case t.state.Taken || t.state.Worked:
		t.end(verdict{Outcome: session.OutcomeFailed, Reason: reasonNoResult}, at)
	}
}

// exit handles the exit frame.
func (t *translator) exit(f agent.Frame) {
	end, events := agent.ReadExit(f, maxRaw)
	t.state.Usage.CostUnknown = t.state.Usage.CostUnknown || t.state.Result == nil // only a result reports the usage
	t.end(verdict{Outcome: end.Outcome, Reason: end.Reason}, f.At)
	t.Emit(events...)
}

// end closes the open blocks and ends the turn.
func (t *translator) end(v verdict, at time.Time) {
	if t.state.Interrupted && v.Outcome != session.OutcomeUnknown {
		v = verdict{Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted}
	}
	if t.state.Refused != 0 && !t.state.Interrupted && v.Outcome == session.OutcomeCancelled {
		v = verdict{
			Outcome: session.OutcomeFailed, Status: t.state.Refused,
			Reason: fmt.Sprintf("The model API refused a request with status %d.", t.state.Refused),
		}
	}
	for _, w := range t.state.Waiting {
		t.Out.Resolved = append(t.Out.Resolved, w.ID)
	}
	t.Emit(t.state.cut(at)...)
	t.Emit(translate.Usage(t.state.Usage, t.state.Model, at))
	usage := t.state.Usage
	usage.ToolCalls = t.state.ToolCalls
	t.Out.End = &agent.TurnEnd{Outcome: v.Outcome, Reason: v.Reason, Usage: usage, Model: t.state.Model}
	if v.Outcome == session.OutcomeFailed && stdio.RefusesKey(v.Status, v.Reason) {
		t.Out.End.Unauthorized = &agent.Unauthorized{Status: v.Status}
	}
	t.state = state{turn: turn{Ended: true}}
}
