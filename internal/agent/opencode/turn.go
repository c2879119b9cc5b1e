package opencode

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/agent/translate"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// turn is the progress of a run.
type turn struct {
	Model     string      `json:"model,omitempty"`
	Usage     usage.Usage `json:"usage,omitzero"`
	ToolCalls int64       `json:"toolCalls,omitempty"`
	// Noted is set if a bridge reports the end of the turn.
	Noted bool `json:"noted,omitempty"`
	// Before is the newest message of the previous turn.
	Before string `json:"before,omitempty"`
	// Errored is the failure of the newest answer. Verdict is the reason why the bridge has aborted
	// the turn.
	Errored *opencodeformat.EndNote `json:"errored,omitempty"`
	Verdict *opencodeformat.EndNote `json:"verdict,omitempty"`
	Ended   bool                    `json:"ended,omitempty"`
	// End is the end of the turn, which takes effect once the added prompts that were not accepted
	// are declined.
	End *opencodeformat.EndNote `json:"over,omitempty"`
}

// note reads a note of the bridge. It ignores notes about other runs.
func (t *translator) note(n stdio.Note, at time.Time) {
	if n.RunID != "" && !t.IsRun(n.RunID) {
		return
	}
	switch n.Type {
	case stdio.NoteRun:
		var data opencodeformat.RunNote
		if len(n.Data) > 0 {
			_ = json.Unmarshal(n.Data, &data) // a run without a title otherwise
		}
		t.state.Noted = true
		t.state.Root, t.state.Children, t.state.Before = n.ID, nil, opencodeformat.Bounded(data.Before, maxTitle)
		if data.Title != "" {
			t.state.Title = data.Title
		}
	case stdio.NoteDeadline, stdio.NoteFailed:
		t.state.Verdict = &opencodeformat.EndNote{Outcome: session.OutcomeFailed, Reason: opencodeformat.Bounded(n.Message, opencodeformat.MaxWords)}
		if m := t.state.message(n.ID); m != nil {
			t.failed(m, timedOutError(n.Message), at)
		}
	case opencodeformat.NoteEnd:
		var data opencodeformat.EndNote
		if json.Unmarshal(n.Data, &data) != nil {
			return
		}
		t.state.End = new(t.verdict(data))
		t.settle(at)
	case stdio.NoteDeclined:
		t.Settle(&t.state.Expected, opencodeformat.SteerMark(t.Run.RunID, n.ID), false)
		t.settle(at)
	}
}

// settle ends the turn once its outcome is known and no added prompt is pending.
func (t *translator) settle(at time.Time) {
	if t.state.End != nil && !t.state.Expected.Wait() {
		t.end(*t.state.End, at)
	}
}

// verdict returns how the run has ended: as the bridge reports, or else as the agent does.
func (t *translator) verdict(note opencodeformat.EndNote) opencodeformat.EndNote {
	switch {
	case note.Outcome != "":
		return note
	case t.state.Verdict != nil:
		return *t.state.Verdict
	case t.state.Errored != nil:
		return *t.state.Errored
	}
	return opencodeformat.EndNote{Outcome: session.OutcomeCompleted}
}

type errorEvent struct {
	SessionID string                      `json:"sessionID"`
	Error     *opencodeformat.NativeError `json:"error"`
}

// sessionError reads the failure of an answer. The caller of a subagent handles its errors.
func (t *translator) sessionError(e errorEvent, at time.Time) {
	if e.Error == nil {
		return
	}
	where := t.conversationOf(e.SessionID)
	m := t.state.newest(where)
	if m != nil {
		t.failed(m, e.Error, at)
	}
	if where != conversation.Main {
		return
	}
	if e.Error.Name == opencodeformat.Aborted {
		t.state.Errored = &opencodeformat.EndNote{Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted}
		return
	}
	t.state.Errored = new(opencodeformat.FailedBy(e.Error))
	if m == nil {
		t.Emit(conversation.Event{
			Type: conversation.EventError, At: at,
			Data: conversation.Problem{Code: "agent_error", Message: e.Error.Words()},
		})
	}
}

// exit handles the exit frame.
func (t *translator) exit(f agent.Frame) {
	end, events := agent.ReadExit(f, agent.MaxStderr)
	t.state.Usage.CostUnknown = t.state.Usage == usage.Usage{}
	t.end(opencodeformat.EndNote{Outcome: end.Outcome, Reason: end.Reason}, f.At)
	t.Emit(events...)
}

// end closes the open blocks and ends the turn.
func (t *translator) end(v opencodeformat.EndNote, at time.Time) {
	if v.Outcome == session.OutcomeCancelled && t.state.Usage == (usage.Usage{}) {
		t.state.Usage.CostUnknown = true // the agent reports no usage for an aborted answer
	}
	t.Emit(t.state.Cut(at)...)
	t.report(v, at)
	t.state = state{turn: turn{Ended: true}}
}

// report emits the end of the turn.
func (t *translator) report(v opencodeformat.EndNote, at time.Time) {
	t.Out.Resolved = append(t.Out.Resolved, t.state.Waiting...)
	t.Emit(translate.Usage(t.state.Usage, t.state.Model, at))
	usage := t.state.Usage
	usage.ToolCalls = t.state.ToolCalls
	t.Out.End = &agent.TurnEnd{Outcome: v.Outcome, Reason: v.Reason, Usage: usage, Model: t.state.Model}
	if v.Outcome == session.OutcomeFailed && stdio.RefusesKey(v.Status, v.Reason) {
		provider, _, _ := strings.Cut(t.state.Model, "/")
		t.Out.End.Unauthorized = &agent.Unauthorized{Status: v.Status, URL: v.URL, Provider: provider}
	}
}
