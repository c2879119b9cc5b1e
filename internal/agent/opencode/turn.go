package opencode

import (
	"encoding/json"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// noteEnd is the bridge's note that a turn is over and its transcript written.
const noteEnd stdio.NoteType = "end"

// runNote is the data of the note that a run begins; its ID is the session of the main conversation.
type runNote struct {
	Title string `json:"title,omitempty"`
	// Before is the newest message there was.
	Before string `json:"before,omitempty"`
}

// endNote is the data of the note that a run is over.
type endNote struct {
	Outcome session.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
}

// turn is how far a run has come.
type turn struct {
	Model     string        `json:"model,omitempty"`
	Usage     session.Usage `json:"usage,omitzero"`
	ToolCalls int64         `json:"toolCalls,omitempty"`
	// Begun: something has happened; what a stream has left of another turn does not count.
	Begun bool `json:"begun,omitempty"`
	// Idle: the agent has nothing more to do, and may still write down what it did.
	Idle bool `json:"idle,omitempty"`
	// Noted: a bridge reports when the turn ends.
	Noted bool `json:"noted,omitempty"`
	// Before is the newest message of the turn before.
	Before string `json:"before,omitempty"`
	// Errored is how the newest answer has failed. Verdict is why the bridge has given up.
	Errored *endNote `json:"errored,omitempty"`
	Verdict *endNote `json:"verdict,omitempty"`
	Ended   bool     `json:"ended,omitempty"`
}

// note reads a line of the bridge. Notes about other runs mean nothing.
func (t *translator) note(n stdio.Note, at time.Time) {
	if t.run.RunID != "" && n.RunID != "" && n.RunID != t.run.RunID {
		return
	}
	switch n.Type {
	case stdio.NoteRun:
		var data runNote
		if len(n.Data) > 0 {
			_ = json.Unmarshal(n.Data, &data) // a run without a title
		}
		t.state.Noted = true
		t.state.Root, t.state.Children, t.state.Before = n.ID, nil, bounded(data.Before, maxTitle)
		if data.Title != "" {
			t.state.Title = data.Title
		}
	case stdio.NoteDeadline, stdio.NoteFailed:
		t.state.Verdict = &endNote{Outcome: session.OutcomeFailed, Reason: bounded(n.Message, maxWords)}
		if m := t.state.message(n.ID); m != nil {
			t.failed(m, gaveUp(n.Message), at)
		}
	case noteEnd:
		var data endNote
		if json.Unmarshal(n.Data, &data) != nil {
			return
		}
		t.end(t.verdict(data), at)
	}
}

// verdict is how the run has ended: as the bridge says, else as the agent did.
func (t *translator) verdict(told endNote) endNote {
	switch {
	case told.Outcome != "":
		return told
	case t.state.Verdict != nil:
		return *t.state.Verdict
	case t.state.Errored != nil:
		return *t.state.Errored
	}
	return endNote{Outcome: session.OutcomeCompleted}
}

type errorEvent struct {
	SessionID string       `json:"sessionID"`
	Error     *nativeError `json:"error"`
}

// sessionError reads that an answer has failed. The caller of a subagent handles its errors.
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
	t.state.Begun = true
	if e.Error.Name == aborted {
		t.state.Errored = &endNote{Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted}
		return
	}
	t.state.Errored = &endNote{Outcome: session.OutcomeFailed, Reason: e.Error.words()}
	if m == nil {
		t.emit(conversation.Event{
			Type: conversation.EventError, At: at,
			Data: conversation.Problem{Code: "agent_error", Message: e.Error.words()},
		})
	}
}

type idleEvent struct {
	SessionID string `json:"sessionID"`
}

// idle reads that a session has nothing more to do. Without a bridge this ends the turn: at once,
// or when the agent has stored how it aborted its work.
func (t *translator) idle(e idleEvent, at time.Time) {
	if t.state.Noted || t.run.RunID != "" || !t.state.Begun || t.state.Root == "" || e.SessionID != t.state.Root {
		return
	}
	if t.state.writing() && !t.state.Idle {
		t.state.Idle = true
		return
	}
	t.end(t.verdict(endNote{}), at)
}

// exit reads that the process has ended.
func (t *translator) exit(f agent.Frame) {
	end, events := agent.ReadExit(f)
	t.end(endNote{Outcome: end.Outcome, Reason: end.Reason}, f.At.UTC())
	t.emit(events...)
}

// end closes what is open and ends the turn.
func (t *translator) end(v endNote, at time.Time) {
	t.out.Resolved = append(t.out.Resolved, t.state.Waiting...)
	// In a captured stream the agent continues, and itself reports the outcome of what is open.
	goesOn := t.capture != nil && !t.state.Noted
	if !goesOn {
		t.emit(t.state.cut(at)...)
	}
	t.emit(t.metadata(at))
	usage := t.state.Usage
	usage.ToolCalls = t.state.ToolCalls
	t.out.End = &agent.TurnEnd{Outcome: v.Outcome, Reason: v.Reason, Usage: usage, Model: t.state.Model}
	if goesOn {
		t.state.turn = turn{Ended: true}
		return
	}
	t.state = state{turn: turn{Ended: true}}
}
