package codex

import (
	"slices"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/agent/codex/execlines"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// recording translates a captured stream, which names no run: lines of the app-server, or of codex
// exec.
type recording struct {
	*translator
	prefix string // prefix of item ids of codex exec
}

// recordingState is the state of a translator with the fields that a recording adds.
type recordingState struct {
	*state
	Prefix string `json:"exec,omitempty"`
}

func newRecording(from []byte) (*recording, error) {
	r := &recording{translator: &translator{}}
	s := recordingState{state: &r.state}
	if err := r.Restore("codex", from, stateVersion, &s); err != nil {
		return nil, err
	}
	r.prefix = s.Prefix
	return r, nil
}

// State returns the state from which a later translator resumes.
func (r *recording) State() ([]byte, error) {
	return agent.EncodeState(stateVersion, &recordingState{&r.state, r.prefix})
}

// Translate translates one frame.
func (r *recording) Translate(f agent.Frame) (agent.Translation, error) {
	return r.Read(f, r.state.Ended, r.line, r.exit), nil
}

// execTurn is the id of the only turn in the output of codex exec.
const execTurn = "exec"

func (r *recording) line(f agent.Frame) {
	l, ok := execlines.Read(f.Data)
	if !ok {
		r.translator.line(f)
		return
	}
	where := place{thread: r.state.Root, turn: execTurn, at: f.At}
	switch l.Type {
	case execlines.ThreadStarted:
		r.state.Root, r.prefix = l.Thread, l.Prefix(f.At)
	case execlines.TurnStarted:
		r.state.Begun = true
	case execlines.ItemStarted, execlines.ItemUpdated:
		if it, ok := l.Item(r.prefix); ok {
			r.Emit(r.state.begin(where, it)...)
		}
	case execlines.ItemCompleted:
		if it, ok := l.Item(r.prefix); ok {
			r.Picture(it.Images)
			r.Emit(r.state.finish(where, it)...)
		}
	case execlines.Error:
		if l.Retries() {
			r.Emit(r.state.retry(where, codexformat.Bounded(l.Message), 0)...)
		}
	case execlines.TurnCompleted:
		for _, o := range slices.Clone(r.state.Open) {
			if o.Block.Type == conversation.Subagent {
				r.Emit(r.state.Close(o, conversation.Success, f.At)) // the stream does not contain how it ended
			}
		}
		r.endTurn(l, where)
	case execlines.TurnFailed:
		r.endTurn(l, where)
	}
}

// endTurn ends the turn.
func (r *recording) endTurn(l execlines.Line, where place) {
	v := l.Verdict()
	r.Emit(r.state.endTurn(where, v)...)
	r.state.Usage = usage.Usage{InputTokens: l.Usage.Input, OutputTokens: l.Usage.Output}
	r.end(*r.judge(v), where.at)
}
