package gemini

import (
	"encoding/json"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/acp"
	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
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
	t := &translator{Turn: translate.Turn{Run: run}, state: state{Bridged: run.RunID != ""}}
	if err := t.Restore("gemini", from, stateVersion, &t.state); err != nil {
		return nil, err
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

// Translate reads one frame.
func (t *translator) Translate(f agent.Frame) (agent.Translation, error) {
	return t.Read(f, t.state.Ended, t.line, t.exit), nil
}

// Cut closes what is open.
func (t *translator) Cut(at time.Time) []conversation.Event { return t.state.Cut(at.UTC()) }

// line reads a line of stdout: a note of the bridge, a message of the Agent Client Protocol, or a
// line of the program's own stream-json.
func (t *translator) line(f agent.Frame) {
	at := f.At
	if n, ok := stdio.ParseNote(f.Data); ok {
		t.note(n, at)
		return
	}
	var m frame
	switch {
	case !geminiformat.Decode(f.Data, &m):
		t.Unparsed(f, geminiformat.Bounded(string(f.Data)))
	case m.Method == acpformat.MethodUpdate:
		if !t.update(f, m, at) {
			t.Unparsed(f, geminiformat.Bounded(string(f.Data)))
		}
	case m.Method == acpformat.MethodPermission:
		if !t.asked(m, at) {
			t.Unparsed(f, geminiformat.Bounded(string(f.Data)))
		}
	case m.Method == "" && len(m.ID) > 0 && (len(m.Result) > 0 || m.Error != nil):
		t.responded(f, m, at)
	case m.Method == "" && m.Type != "":
		if !t.native(f, m, at) {
			t.Unparsed(f, geminiformat.Bounded(string(f.Data)))
		}
	case acp.OfClient(m.Method):
	default:
		t.Unparsed(f, geminiformat.Bounded(string(f.Data)))
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

// note reads a line of the bridge.
func (t *translator) note(n stdio.Note, at time.Time) {
	t.state.Bridged = true
	switch n.Type {
	case geminiformat.NotePrompt:
		if !t.Mine(n.RunID) {
			return
		}
		t.state.Begun = true
	case stdio.NoteKnown, geminiformat.NoteEnd:
		if !t.Mine(n.RunID) {
			return
		}
		var d geminiformat.EndNote
		geminiformat.Decode(n.Data, &d)
		t.end(d.Outcome, d.Reason, at)
		return
	case geminiformat.NoteAnswered:
		t.Resolve(&t.state.Waiting, n.ID)
	case geminiformat.NoteChat:
		// The journal has the records of a turn that the stream has not, where its process died:
		// those of a turn before this one begin nothing here.
		if !t.state.Begun {
			return
		}
	}
	t.Emit(t.state.apply(n, at)...)
}

// end closes what is open and ends the turn.
func (t *translator) end(outcome session.Outcome, reason string, at time.Time) {
	switch outcome {
	case session.OutcomeCompleted, session.OutcomeFailed, session.OutcomeCancelled, session.OutcomeUnknown:
	default:
		outcome, reason = session.OutcomeUnknown, "the bridge does not say how the turn ended"
	}
	t.Out.Resolved = append(t.Out.Resolved, t.state.Waiting...)
	t.Emit(t.state.Cut(at)...)
	t.Emit(translate.Usage(t.state.Usage, t.state.Model, at))
	t.Out.End = &agent.TurnEnd{Outcome: outcome, Reason: reason, Usage: t.state.Usage, Model: t.state.Model}
	t.state = state{Ended: true}
}

// exit reads that the process has ended.
func (t *translator) exit(f agent.Frame) {
	end, events := agent.ReadExit(f, agent.MaxStderr)
	t.end(end.Outcome, end.Reason, f.At)
	t.Emit(events...)
}
