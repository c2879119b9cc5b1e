package acp

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/agent/translate"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// translator translates the frames of one run.
type translator struct {
	translate.Turn
	state state
}

// stateVersion is the version of the state's encoding.
const stateVersion = 1

type state struct {
	acpformat.Recorder          // for streamed text; the bridge notes every block
	Begun              bool     `json:"begun,omitempty"`
	Waiting            []string `json:"waiting,omitempty"` // open questions
	Ended              bool     `json:"ended,omitempty"`
}

// NewTranslator starts a run, or resumes from a state. Without a run id it translates a recording,
// each turn in it as a run.
func (Adapter) NewTranslator(run agent.RunContext, from []byte) (agent.Translator, error) {
	if run.RunID == "" {
		return newRecording(from)
	}
	t := &translator{Turn: translate.Turn{Run: run}}
	if err := t.Restore("acp", from, stateVersion, &t.state); err != nil {
		return nil, err
	}
	return t, nil
}

// State returns the state for a later translator. Long content of open blocks is omitted: the
// bridge reports these blocks in full when they end.
func (t *translator) State() ([]byte, error) {
	return agent.EncodeState(stateVersion, t.state.kept())
}

// kept returns the state with its open blocks bounded.
func (s state) kept() *state {
	s.Open = kept(s.Open)
	return &s
}

// Translate translates one frame.
func (t *translator) Translate(f agent.Frame) (agent.Translation, error) {
	return t.Read(f, t.state.Ended, t.line, t.exit), nil
}

// Cut aborts the open blocks.
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
		understood = t.update(m, at)
	case m.Method == acpformat.MethodPermission:
		understood = t.asked(m)
	case m.Method != "", m.isResponse():
		// The bridge responds to the requests that it supports and rejects the others. It reports
		// the meaning of responses in notes.
	default:
		understood = false
	}
	if !understood {
		t.Unparsed(f, acpformat.Bounded(string(f.Data)))
	}
}

// note reads a note of the bridge.
func (t *translator) note(n stdio.Note, at time.Time) {
	own := t.IsRun(n.RunID)
	switch n.Type {
	case stdio.NoteRun:
		if own {
			t.state.Begun, t.state.Prefix = true, n.RunID
		}
	case stdio.NoteKnown, acpformat.NoteEnd:
		if own {
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

// block shows the current state of a block.
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

// update reads an update of the agent: streamed text is shown, everything else comes from the
// bridge's notes.
func (t *translator) update(m message, at time.Time) bool {
	u := m.Params.Update
	if u.Kind != acpformat.UpdateText && u.Kind != acpformat.UpdateThought {
		if t.state.Begun && u.IsCall() {
			t.Picture(acpformat.Images(u.Content))
		}
		_, ok := (&acpformat.Recorder{}).Update(u, at)
		return ok
	}
	if t.state.Begun {
		events, _ := t.state.Update(u, at)
		t.Emit(events...)
	}
	return true
}

// asked reads a permission request.
func (t *translator) asked(m message) bool {
	if m.Params.ToolCall.ID == "" {
		return false
	}
	if t.state.Begun {
		t.question(m)
	}
	return true
}

// question asks for permission for a tool call.
func (t *translator) question(m message) {
	u := m.Params.ToolCall
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
}

// end closes the open blocks and ends the turn.
func (t *translator) end(d acpformat.EndNote, at time.Time) {
	switch d.Outcome {
	case session.OutcomeCompleted, session.OutcomeFailed, session.OutcomeCancelled, session.OutcomeUnknown:
	default:
		d.Outcome, d.Reason = session.OutcomeUnknown, "the bridge did not report how the turn ended"
	}
	t.Out.Resolved = append(t.Out.Resolved, t.state.Waiting...)
	t.Emit(t.state.Cut(at)...)
	t.Emit(translate.Usage(d.Usage, d.Model, at))
	t.Out.End = &agent.TurnEnd{Outcome: d.Outcome, Reason: d.Reason, Usage: d.Usage, Model: d.Model}
	if d.Status != 0 {
		t.Out.End.Unauthorized = &agent.Unauthorized{Status: d.Status}
	}
	t.state = state{Ended: true}
}

// exit handles the exit frame.
func (t *translator) exit(f agent.Frame) {
	end, events := agent.ReadExit(f, agent.MaxStderr)
	t.end(acpformat.EndNote{Outcome: end.Outcome, Reason: end.Reason, Usage: usage.Usage{CostUnknown: true}}, f.At)
	t.Emit(events...)
}
