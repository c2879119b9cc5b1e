package gemini

import (
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

// translator translates the frames of one run.
type translator struct {
	translate.Turn
	state state
}

// stateVersion is the version of the state's encoding.
const stateVersion = 1

type state struct {
	reader
	// Begun is set once the turn has begun. Earlier messages of the agent are its past.
	Begun bool `json:"begun,omitempty"`
	// Waiting are the ids of calls with open questions.
	Waiting []string `json:"waiting,omitempty"`
	Ended   bool     `json:"ended,omitempty"`
}

// NewTranslator starts a run, or resumes from a state. Without a run id it translates a recording,
// each turn in it as a run.
func (Adapter) NewTranslator(run agent.RunContext, from []byte) (agent.Translator, error) {
	if run.RunID == "" {
		return newRecording(from)
	}
	t := &translator{Turn: translate.Turn{Run: run}}
	if err := t.Restore("gemini", from, stateVersion, &t.state); err != nil {
		return nil, err
	}
	t.state.pictured = t.Picture
	return t, nil
}

// State returns the state for a later translator. Long streaming text is omitted: the bridge
// reports it in full when it ends.
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

// line reads a line of stdout: a note of the bridge, or a message of the Agent Client Protocol.
func (t *translator) line(f agent.Frame) {
	if n, ok := stdio.ParseNote(f.Data); ok {
		t.note(n, f.At)
		return
	}
	var m message
	understood := geminiformat.Decode(f.Data, &m)
	switch {
	case !understood:
	case m.Method == acpformat.MethodUpdate:
		understood = t.update(m.Params.Update, f.At)
	case m.Method == acpformat.MethodPermission:
		understood = t.asked(m)
	case m.isResponse(): // the bridge writes notes for a response
	default:
		understood = acp.OfClient(m.Method)
	}
	if !understood {
		t.Unparsed(f, geminiformat.Bounded(string(f.Data)))
	}
}

// update reads an update of the agent: text is streamed, everything else comes from the bridge's
// notes. It reports whether the update was understood.
func (t *translator) update(u geminiformat.Update, at time.Time) bool {
	switch {
	case u.Kind == "":
		return false
	case !t.state.Begun || t.state.Run == "": // the past, which is already known
		return true
	}
	switch u.Kind {
	case updateText:
		if text := saying(u); text != "" {
			t.Emit(t.state.says(textID(t.state.current()), text, at)...)
		}
	case updateThought:
		if text := thought(u); text != "" {
			t.Emit(t.state.thinks(t.state.current(), text, at)...)
		}
	case updateUser, updateCall, updateCallMore:
	default:
		return isSilent(u.Kind)
	}
	return true
}

// asked reads a permission request.
func (t *translator) asked(m message) bool {
	var u geminiformat.Update
	if !geminiformat.Decode(m.Params.ToolCall, &u) || u.ID == "" {
		return false
	}
	if t.state.Run != "" {
		t.question(m, u)
	}
	return true
}

// question asks for permission for a call.
func (t *translator) question(m message, u geminiformat.Update) {
	title := u.Title
	if title == "" {
		title = geminiformat.ToolName(u.ID)
	}
	t.Ask(&t.state.Waiting, agent.Question{
		ID: u.ID, Kind: agent.Permission, ToolName: geminiformat.ToolName(u.ID), ToolUseID: u.ID,
		Input: calledWith(u, title), Title: title, Suggestions: m.Params.Options,
	})
}

// note reads a note of the bridge.
func (t *translator) note(n stdio.Note, at time.Time) {
	switch n.Type {
	case geminiformat.NotePrompt:
		if !t.IsRun(n.RunID) {
			return
		}
		t.state.Begun = true
	case stdio.NoteKnown, geminiformat.NoteEnd:
		if !t.IsRun(n.RunID) {
			return
		}
		var d geminiformat.EndNote
		geminiformat.Decode(n.Data, &d)
		t.end(d, at)
		return
	case geminiformat.NoteAnswered:
		t.Resolve(&t.state.Waiting, n.ID)
	case geminiformat.NoteChat:
		// If the process died, the notebook has records of a turn that the stream lacks. Records of
		// an earlier turn begin nothing here.
		if !t.state.Begun {
			return
		}
	}
	t.Emit(t.state.apply(n, at)...)
}

// end closes the open blocks and ends the turn.
func (t *translator) end(d geminiformat.EndNote, at time.Time) {
	switch d.Outcome {
	case session.OutcomeCompleted, session.OutcomeFailed, session.OutcomeCancelled, session.OutcomeUnknown:
	default:
		d.Outcome, d.Reason = session.OutcomeUnknown, "the bridge did not report how the turn ended"
	}
	t.state.Usage.CostUnknown = true
	t.Out.Resolved = append(t.Out.Resolved, t.state.Waiting...)
	t.Emit(t.state.Cut(at)...)
	t.Emit(translate.Usage(t.state.Usage, t.state.Model, at))
	t.Out.End = &agent.TurnEnd{Outcome: d.Outcome, Reason: d.Reason, Usage: t.state.Usage, Model: t.state.Model}
	if d.Status != 0 {
		t.Out.End.Unauthorized = &agent.Unauthorized{Status: d.Status}
	}
	t.state = state{Ended: true}
}

// exit handles the exit frame.
func (t *translator) exit(f agent.Frame) {
	end, events := agent.ReadExit(f, agent.MaxStderr)
	t.end(geminiformat.EndNote{Outcome: end.Outcome, Reason: end.Reason}, f.At)
	t.Emit(events...)
}
