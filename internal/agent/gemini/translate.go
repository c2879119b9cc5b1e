package gemini

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/acp"
	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// translator reads the lines of one run.
type translator struct {
	run   agent.RunContext
	state state
	out   agent.Translation // of the frame that is being read
}

// stateVersion is the version of the form of a state.
const stateVersion = 1

type state struct {
	reader
	// Bridged: the bridge speaks in this stream, so what the agent streams only fills what the
	// bridge notes.
	Bridged bool `json:"bridged,omitempty"`
	// Begun: the turn has begun; what the agent says before that is its past.
	Begun bool `json:"begun,omitempty"`
	// Waiting are the questions that are open: ids of calls.
	Waiting []string `json:"waiting,omitempty"`
	Ended   bool     `json:"ended,omitempty"`

	// Of a stream without a bridge: the session, and the id of the text that streams.
	Session string `json:"session,omitempty"`
	Text    string `json:"text,omitempty"`
	Failure string `json:"failure,omitempty"`
}

// NewTranslator starts a run, or resumes from a state. Without a run id it reads every turn of a
// stream as one.
func (Adapter) NewTranslator(run agent.RunContext, from []byte) (agent.Translator, error) {
	t := &translator{run: run, state: state{Bridged: run.RunID != ""}}
	if len(from) > 0 {
		if err := agent.DecodeState(from, stateVersion, &t.state); err != nil {
			return nil, fmt.Errorf("gemini translator of run %s: state: %w", run.RunID, err)
		}
	}
	return t, nil
}

// State returns what a later translator needs. Long text that streams is left out: the bridge
// reports it whole in the end.
func (t *translator) State() ([]byte, error) {
	s := t.state
	s.Open = kept(s.Open)
	return agent.EncodeState(stateVersion, &s)
}

// Translate reads one frame. Frames after the end of the turn are ignored.
func (t *translator) Translate(f agent.Frame) (agent.Translation, error) {
	if t.state.Ended {
		return agent.Translation{}, nil
	}
	t.out = agent.Translation{}
	switch f.Stream {
	case agent.Stdout:
		t.line(f)
	case agent.Exit:
		t.exit(f)
	}
	out := t.out
	t.out = agent.Translation{}
	return out, nil
}

// Cut closes what is open.
func (t *translator) Cut(at time.Time) []conversation.Event { return t.state.Cut(at.UTC()) }

func (t *translator) emit(events ...conversation.Event) {
	t.out.Events = append(t.out.Events, events...)
}

// line reads a line of stdout: a note of the bridge, a message of the Agent Client Protocol, or a
// line of the program's own stream-json.
func (t *translator) line(f agent.Frame) {
	at := f.At.UTC()
	if len(bytes.TrimSpace(f.Data)) == 0 {
		return
	}
	if n, ok := stdio.ParseNote(f.Data); ok {
		t.note(n, at)
		return
	}
	var m frame
	switch {
	case !geminiformat.Decode(f.Data, &m):
		t.unparsed(f, at)
	case m.Method == acpformat.MethodUpdate:
		if !t.update(f, m, at) {
			t.unparsed(f, at)
		}
	case m.Method == acpformat.MethodPermission:
		if !t.asked(m, at) {
			t.unparsed(f, at)
		}
	case m.Method == "" && len(m.ID) > 0 && (len(m.Result) > 0 || m.Error != nil):
		t.responded(f, m, at)
	case m.Method == "" && m.Type != "":
		if !t.native(f, m, at) {
			t.unparsed(f, at)
		}
	case acp.OfClient(m.Method):
	default:
		t.unparsed(f, at)
	}
}

// frame is a line of either protocol.
type frame struct {
	ID     json.RawMessage           `json:"id"`
	Method string                    `json:"method"`
	Params geminiformat.UpdateParams `json:"params"`
	Result json.RawMessage           `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
	nativeLine
}

// unparsed keeps the beginning of a line that is not understood.
func (t *translator) unparsed(f agent.Frame, at time.Time) {
	t.emit(ledger.Whole(conversation.Main, conversation.Block{
		ID:   fmt.Sprintf("unparsed/%s/%d", t.run.RunID, f.No),
		Type: conversation.System, Status: conversation.Complete, CreatedAt: at,
		Subtype: "unparsed", Message: geminiformat.Bounded(string(f.Data)),
	}, at)...)
}

// note reads a line of the bridge.
func (t *translator) note(n stdio.Note, at time.Time) {
	t.state.Bridged = true
	switch n.Type {
	case geminiformat.NotePrompt:
		if t.run.RunID != "" && n.RunID != t.run.RunID {
			return
		}
		t.state.Begun = true
	case stdio.NoteKnown, geminiformat.NoteEnd:
		if t.run.RunID != "" && n.RunID != t.run.RunID {
			return
		}
		var d geminiformat.EndNote
		geminiformat.Decode(n.Data, &d)
		t.end(d.Outcome, d.Reason, at)
		return
	case geminiformat.NoteAnswered:
		t.resolved(n.ID)
	case geminiformat.NoteChat:
		// The journal has the records of a turn that the stream has not, where its process died:
		// those of a turn before this one begin nothing here.
		if !t.state.Begun {
			return
		}
	}
	t.emit(t.state.heed(n, at)...)
}

func (t *translator) resolved(id string) {
	before := len(t.state.Waiting)
	t.state.Waiting = slices.DeleteFunc(t.state.Waiting, func(w string) bool { return w == id })
	if len(t.state.Waiting) < before {
		t.out.Resolved = append(t.out.Resolved, id)
	}
}

// end closes what is open and ends the turn.
func (t *translator) end(outcome session.Outcome, reason string, at time.Time) {
	switch outcome {
	case session.OutcomeCompleted, session.OutcomeFailed, session.OutcomeCancelled, session.OutcomeUnknown:
	default:
		outcome, reason = session.OutcomeUnknown, "the bridge does not say how the turn ended"
	}
	t.out.Resolved = append(t.out.Resolved, t.state.Waiting...)
	t.emit(t.state.Cut(at)...)
	t.emit(t.state.metadata(at))
	t.out.End = &agent.TurnEnd{Outcome: outcome, Reason: reason, Usage: t.state.Usage, Model: t.state.Model}
	t.state = state{Ended: true}
}

// exit reads that the process has ended.
func (t *translator) exit(f agent.Frame) {
	end, events := agent.ReadExit(f)
	t.end(end.Outcome, end.Reason, f.At.UTC())
	t.emit(events...)
}
