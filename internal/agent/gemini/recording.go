package gemini

import (
	"fmt"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/acp"
	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini/streamjson"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// recording translates a captured stream, which names no run. Until the stream contains a note of a
// bridge, all blocks come from the program's own output, over the Agent Client Protocol or as
// stream-json.
type recording struct {
	*translator
	streamed streamed
}

// streamed keeps the details that a stream without a bridge reports only once.
type streamed struct {
	// Bridged is set once the stream contains a note of a bridge.
	Bridged bool   `json:"bridged,omitempty"`
	Session string `json:"session,omitempty"`
	// Text is the id of the streaming text.
	Text    string `json:"text,omitempty"`
	Failure string `json:"failure,omitempty"`
}

// recordingState is the state of a translator with the fields that a recording adds.
type recordingState struct {
	*state
	streamed
}

func newRecording(from []byte) (*recording, error) {
	r := &recording{translator: &translator{}}
	s := recordingState{state: &r.state}
	if err := r.Restore("gemini", from, stateVersion, &s); err != nil {
		return nil, err
	}
	r.streamed, r.state.pictured = s.streamed, r.Picture
	return r, nil
}

// State returns the state from which a later translator resumes.
func (r *recording) State() ([]byte, error) {
	return agent.EncodeState(stateVersion, &recordingState{r.state.kept(), r.streamed})
}

// Translate translates one frame.
func (r *recording) Translate(f agent.Frame) (agent.Translation, error) {
	return r.Read(f, r.state.Ended, r.line, r.exit), nil
}

func (r *recording) line(f agent.Frame) {
	if _, ok := stdio.ParseNote(f.Data); ok {
		r.streamed.Bridged = true
	}
	if r.streamed.Bridged {
		r.translator.line(f)
		return
	}
	var m message
	understood := geminiformat.Decode(f.Data, &m)
	switch {
	case !understood:
	case m.Method == acpformat.MethodUpdate:
		understood = r.update(f, m)
	case m.Method == acpformat.MethodPermission:
		understood = r.asked(m, f.At)
	case m.isResponse():
		r.responded(f, m)
	case m.Method == "":
		var l streamjson.Line
		understood = geminiformat.Decode(f.Data, &l) && l.Type != "" && r.native(f, l)
	default:
		understood = acp.OfClient(m.Method)
	}
	if !understood {
		r.Unparsed(f, geminiformat.Bounded(string(f.Data)))
	}
}

// responseTag begins the message that the program prints as the user, in place of a result, when it
// repeats the past.
const responseTag = "[Function Response: "

// update reads an update of the agent. It reports whether it was understood.
func (r *recording) update(f agent.Frame, m message) bool {
	u, at := m.Params.Update, f.At
	if u.Kind == "" {
		return false
	}
	if r.streamed.Session == "" {
		r.streamed.Session = m.Params.SessionID
	}
	switch u.Kind {
	case updateText:
		if text := saying(u); text != "" {
			if r.streamed.Text == "" {
				r.closeText(at)
				r.streamed.Text = textID(r.made(f))
			}
			r.Emit(r.state.says(r.streamed.Text, text, at)...)
		}
	case updateThought:
		if text := thought(u); text != "" {
			r.closeText(at)
			r.Emit(r.state.thinks(r.made(f), text, at)...)
		}
	case updateUser:
		r.closeText(at)
		// The result of a call is reported with the call too.
		if !strings.HasPrefix(geminiformat.Words(u.Content), responseTag) {
			r.Emit(r.state.user(conversation.Main, geminiformat.Record{ID: r.made(f), Content: u.Content}, at)...)
		}
	case updateCall, updateCallMore:
		r.closeText(at)
		return r.called(u, at)
	default:
		return isSilent(u.Kind)
	}
	return true
}

// made returns an id for content without one. It is unique to the line.
func (r *recording) made(f agent.Frame) string {
	return fmt.Sprintf("%s/%d", r.streamed.Session, f.No)
}

// closeText completes streaming text and thoughts, whose end no line marks.
func (r *recording) closeText(at time.Time) {
	r.streamed.Text = ""
	for i := 0; i < len(r.state.Open); {
		o := r.state.Open[i]
		if o.Block.Type != conversation.AssistantText && o.Block.Type != conversation.Thinking {
			i++
			continue
		}
		r.Emit(r.state.Close(o, conversation.Complete, at)) // removes it from Open
	}
}

// called reads a call, which has only a title.
func (r *recording) called(u geminiformat.Update, at time.Time) bool {
	if u.ID == "" {
		return false
	}
	if r.state.Find(u.ID) == nil && u.Status != "completed" && u.Status != "failed" {
		r.Emit(r.state.began(u.ID, geminiformat.ToolNote{Name: geminiformat.ToolName(u.ID), Title: u.Title}, at, at)...)
		return true
	}
	switch u.Status {
	case "in_progress":
		if o := r.state.Find(u.ID); o != nil && o.Block.Status == conversation.Pending {
			r.Emit(r.state.running(o, at)...)
		}
	case "completed", "failed":
		r.Resolve(&r.state.Waiting, u.ID)
		status, key := "success", "output"
		if u.Status == "failed" {
			status, key = "error", "error"
		}
		use, result := r.state.ended(conversation.Main, geminiformat.ToolCall{
			ID: u.ID, Name: geminiformat.ToolName(u.ID), Status: status,
			Result: geminiformat.Data([]map[string]geminiformat.Response{{"functionResponse": {ID: u.ID, Response: geminiformat.Data(map[string]string{key: acpformat.Shown(u.Content)})}}}),
		}, at)
		r.Emit(append(use, result...)...)
	}
	return true
}

// asked shows the call for which the agent requests permission, and asks the question.
func (r *recording) asked(m message, at time.Time) bool {
	var u geminiformat.Update
	if !geminiformat.Decode(m.Params.ToolCall, &u) || u.ID == "" {
		return false
	}
	r.closeText(at)
	if r.state.Find(u.ID) == nil {
		r.Emit(r.state.began(u.ID, geminiformat.ToolNote{Name: geminiformat.ToolName(u.ID), Title: u.Title, Asked: true}, at, at)...)
	}
	r.question(m, u)
	return true
}

// responded reads a response. The response to a prompt ends the turn, and so does an error.
func (r *recording) responded(f agent.Frame, m message) {
	var result struct {
		StopReason string `json:"stopReason"`
		SessionID  string `json:"sessionId"`
		Meta       struct {
			Quota struct {
				Models []struct {
					Model string `json:"model"`
				} `json:"model_usage"`
			} `json:"quota"`
		} `json:"_meta"`
	}
	geminiformat.Decode(m.Result, &result)
	if result.SessionID != "" {
		r.streamed.Session = result.SessionID
	}
	if m.Error != nil {
		r.problem(r.made(f), m.Error.Message, f.At)
		r.end(geminiformat.EndNote{Outcome: session.OutcomeFailed, Reason: geminiformat.Bounded(m.Error.Message)}, f.At)
		return
	}
	if result.StopReason == "" {
		r.closeText(f.At)
		return
	}
	used := acpformat.Usage(m.Result)
	r.state.Usage.InputTokens, r.state.Usage.OutputTokens = used.InputTokens, used.OutputTokens
	if models := result.Meta.Quota.Models; len(models) > 0 {
		r.state.Model = models[0].Model
	}
	if result.StopReason != "cancelled" {
		r.closeText(f.At)
	}
	outcome, reason := acpformat.Stopped(result.StopReason)
	r.end(geminiformat.EndNote{Outcome: outcome, Reason: reason}, f.At)
}

// problem shows an error.
func (r *recording) problem(id, message string, at time.Time) {
	r.Emit(ledger.Whole(conversation.Main, conversation.Block{
		ID: "error/" + id, Type: conversation.System, Status: conversation.Complete, CreatedAt: at,
		Subtype: "error", Message: geminiformat.Bounded(message),
	}, at)...)
}

// native reads a line of stream-json. It reports whether it was understood.
func (r *recording) native(f agent.Frame, l streamjson.Line) bool {
	at := geminiformat.Time(l.Timestamp, f.At)
	id := fmt.Sprintf("%s/%s/%d", r.streamed.Session, l.Timestamp, f.No)
	if !l.IsAnswer() {
		r.closeText(at)
	}
	switch {
	case l.IsAnswer():
		if r.streamed.Text == "" {
			r.streamed.Text = textID(id)
		}
		r.Emit(r.state.says(r.streamed.Text, l.Content, at)...)
	case l.IsPrompt():
		r.Emit(r.state.user(conversation.Main, geminiformat.Record{ID: id, Content: geminiformat.Quoted(l.Content)}, at)...)
	case l.Type == streamjson.Init:
		r.streamed.Session, r.state.Model = l.SessionID, l.Model
	case l.Type == streamjson.ToolUse:
		return r.nativeCall(l, at)
	case l.Type == streamjson.ToolResult:
		return r.nativeResult(l, at)
	case l.Type == streamjson.Error:
		r.streamed.Failure = l.Message
		r.problem(id, l.Message, at)
	case l.Type == streamjson.Result:
		r.state.Usage.InputTokens, r.state.Usage.OutputTokens = l.Stats.Input, l.Stats.Output
		outcome, reason := l.Outcome(r.streamed.Failure)
		r.end(geminiformat.EndNote{Outcome: outcome, Reason: geminiformat.Bounded(reason)}, at)
	default:
		return false
	}
	return true
}

func (r *recording) nativeCall(l streamjson.Line, at time.Time) bool {
	if l.ToolID == "" || r.state.Find(l.ToolID) != nil {
		return false
	}
	r.Emit(r.state.began(l.ToolID, l.Began(), at, at)...)
	if o := r.state.Find(l.ToolID); o != nil && len(l.Arguments) > 0 {
		o.Block.Input = l.Arguments
		r.Emit(o.Updated(conversation.Updates{Input: l.Arguments}, at))
	}
	return true
}

func (r *recording) nativeResult(l streamjson.Line, at time.Time) bool {
	o := r.state.Find(l.ToolID)
	if o == nil {
		return false
	}
	name := o.Block.Name
	if o.Block.Type == conversation.Subagent {
		name = geminiformat.SubagentTool
	}
	use, result := r.state.ended(conversation.Main, l.Ended(name, o.Block.Input), at)
	r.Emit(append(use, result...)...)
	return true
}
