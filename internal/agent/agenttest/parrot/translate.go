package parrot

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
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
	reader
	Ended bool `json:"ended,omitempty"`
}

// NewTranslator starts a run, or resumes from a state.
func (Adapter) NewTranslator(run agent.RunContext, from []byte) (agent.Translator, error) {
	t := &translator{Turn: translate.Turn{Run: run}}
	if err := t.Restore("parrot", from, stateVersion, &t.state); err != nil {
		return nil, err
	}
	return t, nil
}

// State returns the state from which a later translator resumes.
func (t *translator) State() ([]byte, error) { return agent.EncodeState(stateVersion, &t.state) }

// Translate translates one frame.
func (t *translator) Translate(f agent.Frame) (agent.Translation, error) {
	return t.Read(f, t.state.Ended, t.line, t.exit), nil
}

// Cut aborts the open blocks.
func (t *translator) Cut(at time.Time) []conversation.Event { return t.state.Cut(at.UTC()) }

// maxLine bounds how much of an unparsed line is shown.
const maxLine = 1 << 10

func (t *translator) line(f agent.Frame) {
	var l record
	if json.Unmarshal(f.Data, &l) != nil || l.Run == "" {
		t.Unparsed(f, strings.ToValidUTF8(string(f.Data[:min(len(f.Data), maxLine)]), "\uFFFD"))
		return
	}
	if !t.IsRun(l.Run) {
		return // remainder of the previous turn
	}
	t.Emit(t.state.read(l, f.At)...)
	switch {
	case l.Aborted:
		t.end(agent.TurnEnd{Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted}, l.Words, f.At)
	case l.Done:
		t.end(agent.TurnEnd{Outcome: session.OutcomeCompleted}, l.Words, f.At)
	}
}

// exit handles the exit frame.
func (t *translator) exit(f agent.Frame) {
	end, events := agent.ReadExit(f, agent.MaxStderr)
	t.end(end, 0, f.At)
	t.Emit(events...)
}

// end closes the open blocks and ends the turn.
func (t *translator) end(end agent.TurnEnd, words int64, at time.Time) {
	end.Usage = usage.Usage{OutputTokens: words}
	t.Emit(t.Cut(at)...)
	t.Emit(translate.Usage(end.Usage, "grey", at))
	t.Out.End = &end
	t.state = state{Ended: true}
}
