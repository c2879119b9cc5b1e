package acp

import (
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// recording translates a captured stream, which names no run. Until the stream contains a note of a
// bridge, all blocks come from the agent's own messages.
type recording struct {
	*translator
	bridged bool
}

// recordingState is the state of a translator with the fields that a recording adds.
type recordingState struct {
	*state
	Bridged bool `json:"bridged,omitempty"`
}

func newRecording(from []byte) (*recording, error) {
	r := &recording{translator: &translator{}}
	s := recordingState{state: &r.state}
	if err := r.Restore("acp", from, stateVersion, &s); err != nil {
		return nil, err
	}
	r.bridged = s.Bridged
	return r, nil
}

// State returns the state from which a later translator resumes.
func (r *recording) State() ([]byte, error) {
	return agent.EncodeState(stateVersion, &recordingState{r.state.kept(), r.bridged})
}

// Translate translates one frame.
func (r *recording) Translate(f agent.Frame) (agent.Translation, error) {
	return r.Read(f, r.state.Ended, r.line, r.exit), nil
}

func (r *recording) line(f agent.Frame) {
	if _, ok := stdio.ParseNote(f.Data); ok {
		r.bridged = true
	}
	if r.bridged {
		r.translator.line(f)
		return
	}
	var m message
	understood := acpformat.Decode(f.Data, &m)
	switch {
	case !understood:
	case m.Method == acpformat.MethodUpdate:
		understood = r.update(f, m)
	case m.Method == acpformat.MethodPermission:
		understood = r.asked(m, f.At)
	case m.isResponse():
		r.responded(f, m)
	default:
		understood = OfClient(m.Method)
	}
	if !understood {
		r.Unparsed(f, acpformat.Bounded(string(f.Data)))
	}
}

// update shows an update of the agent. Text has no id, so the first line of the turn determines its
// prefix.
func (r *recording) update(f agent.Frame, m message) bool {
	p := &m.Params
	id := fmt.Sprintf("%s/%d", p.SessionID, f.No)
	if p.Update.Kind == "" {
		return false
	}
	if r.state.Prefix == "" {
		r.state.Prefix = id
	}
	if p.Update.IsCall() {
		r.Picture(acpformat.Images(p.Update.Content))
	}
	if p.Update.Kind != acpformat.UpdateUser {
		events, ok := r.state.Update(p.Update, f.At)
		r.Emit(events...)
		return ok
	}
	r.Emit(r.state.CloseText(f.At)...)
	if words := acpformat.Words(p.Update.Content); words != "" {
		r.Emit(ledger.Whole("", conversation.Block{
			ID: id, Type: conversation.UserMessage, Status: conversation.Complete, CreatedAt: f.At, Content: words,
		}, f.At)...)
	}
	return true
}

// asked shows the call for which the agent requests permission, and asks the question.
func (r *recording) asked(m message, at time.Time) bool {
	if m.Params.ToolCall.ID == "" {
		return false
	}
	r.Emit(r.state.Call(m.Params.ToolCall, true, at)...)
	r.question(m)
	return true
}

// responded reads a response. The response to a prompt ends the turn, and so does an error.
func (r *recording) responded(f agent.Frame, m message) {
	r.Emit(r.state.CloseText(f.At)...)
	if m.Error != nil {
		message := acpformat.Bounded(m.Error.Message)
		r.Emit(ledger.Whole("", conversation.Block{
			ID: fmt.Sprintf("error/%d", f.No), Type: conversation.System, Status: conversation.Complete, CreatedAt: f.At,
			Subtype: "error", Message: message,
		}, f.At)...)
		r.end(acpformat.EndNote{Outcome: session.OutcomeFailed, Reason: message}, f.At)
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
	r.end(d, f.At)
}

// end ends the turn with the number of tool calls that were counted here.
func (r *recording) end(d acpformat.EndNote, at time.Time) {
	d.Usage.ToolCalls = r.state.Calls
	r.translator.end(d, at)
}

// exit handles the exit frame.
func (r *recording) exit(f agent.Frame) {
	if r.bridged {
		r.translator.exit(f)
		return
	}
	end, events := agent.ReadExit(f, agent.MaxStderr)
	r.end(acpformat.EndNote{Outcome: end.Outcome, Reason: end.Reason}, f.At)
	r.Emit(events...)
}
