package acp

import (
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/agent/translate"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// translator reads the lines of one run.
type translator struct {
	translate.Turn
	state state
}

// stateVersion is the version of the form of a state.
const stateVersion = 1

type state struct {
	acpformat.Recorder
	// Bridged: the bridge notes every block, so what the agent says itself only streams.
	Bridged bool     `json:"bridged,omitempty"`
	Begun   bool     `json:"begun,omitempty"`
	Waiting []string `json:"waiting,omitempty"` // questions that are open
	Ended   bool     `json:"ended,omitempty"`
}

// NewTranslator starts a run, or resumes from a state. Without a run id it reads every turn of a
// stream as one.
func (Adapter) NewTranslator(run agent.RunContext, from []byte) (agent.Translator, error) {
	t := &translator{Turn: translate.Turn{Run: run}, state: state{Bridged: run.RunID != ""}}
	if err := t.Restore("acp", from, stateVersion, &t.state); err != nil {
		return nil, err
	}
	return t, nil
}

// State returns what a later translator needs. Long content of open blocks is left out: the bridge
// reports them whole in the end.
func (t *translator) State() ([]byte, error) {
	s := t.state
	s.Open = kept(s.Open)
	return agent.EncodeState(stateVersion, &s)
}

// Translate reads one frame.
func (t *translator) Translate(f agent.Frame) (agent.Translation, error) {
	return t.Read(f, t.state.Ended, t.line, t.exit), nil
}

// Cut closes what is open.
func (t *translator) Cut(at time.Time) []conversation.Event { return t.state.Cut(at.UTC()) }

func (t *translator) line(f agent.Frame) {
	at := f.At
	if n, ok := stdio.ParseNote(f.Data); ok {
		t.note(n, at)
		return
	}
	var m message
	understood := acpformat.Decode(f.Data, &m)
	switch {
	case !understood:
	case m.Method == acpformat.MethodUpdate:
		understood = t.update(f, m, at)
	case m.Method == acpformat.MethodPermission:
		understood = t.asked(m, at)
	case m.Method == "" && len(m.ID) > 0 && (m.Result != nil || m.Error != nil):
		t.responded(f, m, at)
	case m.Method != "" && t.state.Bridged, OfClient(m.Method):
		// The bridge answers what it knows, and refuses the rest.
	default:
		understood = false
	}
	if !understood {
		t.Unparsed(f, acpformat.Bounded(string(f.Data)))
	}
}

// note reads a line of the bridge.
func (t *translator) note(n stdio.Note, at time.Time) {
	t.state.Bridged = true
	mine := t.Mine(n.RunID)
	switch n.Type {
	case stdio.NoteRun:
		if mine {
			t.state.Begun, t.state.Prefix = true, n.RunID
		}
	case stdio.NoteKnown, acpformat.NoteEnd:
		if mine {
			var d acpformat.EndNote
			acpformat.Decode(n.Data, &d)
			t.end(d, at)
		}
	case acpformat.NoteAnswered:
		t.Resolve(&t.state.Waiting, n.ID)
	case acpformat.NoteBlock:
		var b conversation.Block
		if t.state.Begun && acpformat.Decode(n.Data, &b) && b.ID != "" {
			t.block(b, at)
		}
	}
}

// block shows the present state of a block.
func (t *translator) block(b conversation.Block, at time.Time) {
	o := t.state.Find(b.ID)
	switch {
	case !b.Status.Open():
		t.Emit(t.state.Show("", b, at)...)
	case o == nil:
		running := b.Status == conversation.Running
		if running {
			b.Status = conversation.Pending
		}
		o = &acpformat.OpenBlock{Entry: ledger.Entry{Block: b}}
		t.Emit(t.state.Start(o, at)...)
		if running {
			o.Block.Status = conversation.Running
			t.Emit(o.Updated(conversation.Updates{Status: conversation.Running}, at))
		}
	default:
		o.Block = b
		t.Emit(o.Updated(conversation.Updates{Status: b.Status, Name: b.Name, Input: b.Input}, at))
	}
}

// update reads what the agent says of its work.
func (t *translator) update(f agent.Frame, m message, at time.Time) bool {
	p := &m.Params
	if p.Update.Kind == "" {
		return false
	}
	if !t.state.Bridged {
		if t.state.Prefix == "" {
			t.state.Prefix = fmt.Sprintf("%s/%d", p.SessionID, f.No)
		}
		if p.Update.Kind == acpformat.UpdateUser {
			t.Emit(t.state.CloseText(at)...)
			if words := acpformat.Words(p.Update.Content); words != "" {
				t.Emit(ledger.Whole("", conversation.Block{
					ID: fmt.Sprintf("%s/%d", p.SessionID, f.No), Type: conversation.UserMessage, Status: conversation.Complete,
					CreatedAt: at, Content: words,
				}, at)...)
			}
			return true
		}
		events, ok := t.state.Update(p.Update, at)
		t.Emit(events...)
		return ok
	}
	switch p.Update.Kind {
	case acpformat.UpdateText, acpformat.UpdateThought:
		if t.state.Begun {
			events, _ := t.state.Update(p.Update, at)
			t.Emit(events...)
		}
		return true
	}
	_, ok := (&acpformat.Recorder{}).Update(p.Update, at)
	return ok
}

// asked reads that the agent wants permission for a call.
func (t *translator) asked(m message, at time.Time) bool {
	u := m.Params.ToolCall
	if u.ID == "" {
		return false
	}
	if !t.state.Bridged {
		t.Emit(t.state.Call(u, true, at)...)
	} else if !t.state.Begun {
		return true
	}
	q := agent.Question{
		ID: u.ID, Kind: agent.Permission, ToolName: u.Name(), ToolUseID: u.ID, Input: u.CalledWith(), Title: u.Title, Suggestions: m.Params.Options,
	}
	if o := t.state.Find(u.ID); o != nil {
		if u.Meta == nil || q.ToolName == "" {
			q.ToolName = o.Block.Name
		}
		if !acpformat.HasFields(u.Input) && len(o.Block.Input) > 0 {
			q.Input = o.Block.Input
		}
	}
	if q.Title == "" {
		q.Title = q.ToolName
	}
	t.Ask(&t.state.Waiting, q)
	return true
}

// responded reads the answer to a request. Where there is no bridge to say so, the one to a prompt
// ends the turn, and so does an error.
func (t *translator) responded(f agent.Frame, m message, at time.Time) {
	if t.state.Bridged {
		return
	}
	t.Emit(t.state.CloseText(at)...)
	if m.Error != nil {
		t.Emit(ledger.Whole("", conversation.Block{
			ID: fmt.Sprintf("error/%d", f.No), Type: conversation.System, Status: conversation.Complete, CreatedAt: at,
			Subtype: "error", Message: acpformat.Bounded(m.Error.Message),
		}, at)...)
		t.end(acpformat.EndNote{Outcome: session.OutcomeFailed, Reason: acpformat.Bounded(m.Error.Message)}, at)
		return
	}
	var result struct {
		StopReason string `json:"stopReason"`
	}
	if acpformat.Decode(m.Result, &result); result.StopReason == "" {
		return
	}
	d := acpformat.EndNote{Usage: acpformat.Usage(m.Result)}
	d.Outcome, d.Reason = acpformat.Stopped(result.StopReason)
	t.end(d, at)
}

// end closes what is open and ends the turn.
func (t *translator) end(d acpformat.EndNote, at time.Time) {
	switch d.Outcome {
	case session.OutcomeCompleted, session.OutcomeFailed, session.OutcomeCancelled, session.OutcomeUnknown:
	default:
		d.Outcome, d.Reason = session.OutcomeUnknown, "the bridge does not say how the turn ended"
	}
	if !t.state.Bridged {
		d.Usage.ToolCalls = t.state.Calls
	}
	t.Out.Resolved = append(t.Out.Resolved, t.state.Waiting...)
	t.Emit(t.state.Cut(at)...)
	t.Emit(translate.Usage(d.Usage, d.Model, at))
	t.Out.End = &agent.TurnEnd{Outcome: d.Outcome, Reason: d.Reason, Usage: d.Usage, Model: d.Model}
	t.state = state{Ended: true}
}

// exit reads that the process has ended.
func (t *translator) exit(f agent.Frame) {
	end, events := agent.ReadExit(f, agent.MaxStderr)
	t.end(acpformat.EndNote{Outcome: end.Outcome, Reason: end.Reason}, f.At)
	t.Emit(events...)
}
