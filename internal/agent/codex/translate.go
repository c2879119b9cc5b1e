package codex

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/agent/jsonscan"
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
	reader
	// Turns are the turns that have begun in this run and have not ended.
	Turns []codexformat.Turn `json:"turns,omitempty"`
	// Begun is set once a turn of the main conversation has begun.
	Begun bool `json:"begun,omitempty"`
	// Noted is set if the stream comes from a bridge, whose notes report information that the agent
	// does not.
	Noted bool `json:"noted,omitempty"`
	// Verdict is how the main turn ended. Subagents may still be running.
	Verdict *verdictState `json:"verdict,omitempty"`
	Waiting []waiting     `json:"waiting,omitempty"`
	Usage   usage.Usage   `json:"usage,omitzero"`
	Model   string        `json:"model,omitempty"`
	Died    string        `json:"died,omitempty"` // the bridge's report of the agent's exit
	// Aborted is set if the run was aborted while subagents were running, possibly after the main
	// turn.
	Aborted bool   `json:"aborted,omitempty"`
	Ended   bool   `json:"ended,omitempty"`
	Limit   string `json:"limit,omitempty"` // why the bridge has aborted the turn
	// Failure is the response of the model API that made the bridge abort the turn.
	Failure codexformat.Failure `json:"failure,omitzero"`
	Counted map[string]base     `json:"counted,omitempty"`
	// Expected are the prompts added to the running turn, by id.
	Expected translate.Expected `json:"expected,omitempty"`
}

var _ agent.Expecter = (*translator)(nil)

// Expect registers a prompt for the running turn.
func (t *translator) Expect(s agent.Steered) (waits bool) { return t.state.Expected.Add(s.PromptID, s) }

type verdictState struct {
	Outcome session.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
	codexformat.Failure
}

// base is the usage of a thread before the run and during it.
type base struct {
	Input     int64 `json:"input"`
	Output    int64 `json:"output"`
	RunInput  int64 `json:"runInput"`
	RunOutput int64 `json:"runOutput"`
}

// NewTranslator starts a run, or resumes from a state. Without a run id it translates a recording,
// each turn in it as a run.
func (Adapter) NewTranslator(run agent.RunContext, from []byte) (agent.Translator, error) {
	if run.RunID == "" {
		return newRecording(from)
	}
	t := &translator{Turn: translate.Turn{Run: run}}
	if err := t.Restore("codex", from, stateVersion, &t.state); err != nil {
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

// decodeFrame decodes a line of the agent. It returns false if the line is not a JSON object. The
// params of a request are copied, because questions are kept; all other values alias the line.
func decodeFrame(line []byte) (codexformat.Frame, bool) {
	var l codexformat.Frame
	var params []byte
	ok := jsonscan.Fields(line, func(key, value []byte) {
		switch string(key) {
		case "id":
			l.ID = jsonscan.Clone(value)
		case "method":
			l.Method = jsonscan.Text(value)
		case "params":
			params = value
		case "result":
			l.Result = value
		case "error":
			l.Error = value
		case "emittedAtMs":
			l.Sent = codexformat.Number(value)
		}
	})
	if l.Method != "" && len(l.ID) > 0 {
		codexformat.Lenient(params, &l.Params)
	} else {
		jsonscan.Fields(params, l.Params.Set)
	}
	return l, ok
}

// line reads a line of stdout.
func (t *translator) line(f agent.Frame) {
	at := f.At
	if note, ok := stdio.ParseNote(f.Data); ok {
		t.note(note, at)
		return
	}
	l, ok := decodeFrame(f.Data)
	if !ok {
		t.unparsed(f)
		return
	}
	switch {
	case l.Method != "" && len(l.ID) > 0:
		t.asked(l, at)
	case l.Method != "":
		t.notified(f, l, at)
	case len(l.ID) > 0 && (len(l.Result) > 0 || len(l.Error) > 0):
		t.replied(l)
	default:
		t.unparsed(f)
	}
}

// unparsed shows the beginning of a line that is not understood.
func (t *translator) unparsed(f agent.Frame) {
	t.Unparsed(f, codexformat.Bounded(string(f.Data[:min(len(f.Data), codexformat.MaxRaw)])))
}

// replied reads a response. The response to the start of a thread has the thread's id.
func (t *translator) replied(l codexformat.Frame) {
	var r struct {
		Model  string `json:"model"`
		Thread struct {
			ID     string `json:"id"`
			Parent string `json:"parentThreadId"`
		} `json:"thread"`
	}
	if !codexformat.Lenient(l.Result, &r) || r.Thread.ID == "" || r.Thread.Parent != "" {
		return
	}
	if !t.state.Begun {
		t.state.Root = r.Thread.ID
	}
	t.state.Model = codexformat.First(r.Model, t.state.Model)
}

// notified reads a notification.
func (t *translator) notified(f agent.Frame, l codexformat.Frame, at time.Time) {
	p := l.Params
	where := place{thread: p.Thread, turn: p.Turn, at: at}
	own := p.Turn != "" && slices.Contains(t.state.Turns, codexformat.Turn{Thread: p.Thread, ID: p.Turn})
	switch l.Method {
	case "turn/started":
		t.started(p)
	case "turn/completed":
		t.completed(p, at)
	case "item/started":
		if it, ok := codexformat.DecodeItem(p.Item); ok && own {
			t.Emit(t.state.begin(where, it)...)
		}
	case "item/completed":
		if it, ok := codexformat.DecodeItem(p.Item); ok && own {
			t.Picture(it.Images)
			t.Emit(t.state.finish(where, it)...)
			if run, prompt, _ := codexformat.ParseClientID(it.Client); it.Kind == codexformat.KindUser && t.IsRun(run) {
				t.Settle(&t.state.Expected, prompt, true)
			}
		}
	case "item/agentMessage/delta", "item/plan/delta", "item/reasoning/textDelta":
		if own {
			t.Emit(t.state.say(where, p.ItemID, p.Delta, 0)...)
		}
	case "item/reasoning/summaryTextDelta":
		if own {
			t.Emit(t.state.say(where, p.ItemID, p.Delta, p.Part)...)
		}
	case "error":
		if own && p.Retry {
			t.Emit(t.state.retry(where, codexformat.Problem(p.Error), l.Sent)...)
		}
	case "thread/tokenUsage/updated":
		if own {
			t.used(p, at)
		}
	case "serverRequest/resolved":
		t.resolved(p.Request, at)
	case "model/rerouted":
		if p.Model != "" && p.Thread == t.state.Root {
			t.state.Model = p.Model
		}
	case "thread/name/updated":
		if title := codexformat.First(p.Name, p.NewName); title != "" && p.Thread == t.state.Root {
			t.Emit(conversation.Event{Type: conversation.EventTitle, At: at, Data: conversation.Title{Title: title}})
		}
	default:
		if !known(l.Method) {
			t.unparsed(f)
		}
	}
}

// known reports whether a notification belongs to a known area. Those that are not handled above do
// not concern the conversation.
func known(method string) bool {
	area, _, ok := strings.Cut(method, "/")
	switch area {
	case "account", "app", "command", "configWarning", "deprecationNotice", "environment", "externalAgentConfig", "fs",
		"fuzzyFileSearch", "gatewayOAuth", "guardianWarning", "hook", "item", "mcpServer", "model", "project", "process", "rawResponse",
		"rawResponseItem", "remoteControl", "skills", "strictReviewRequired", "thread", "turn", "warning", "windows", "windowsSandbox":
		return true
	}
	return !ok && (method == "warning" || method == "error")
}

// started reads the start of a turn. If the main thread is not known yet, it is the thread of the
// first turn.
func (t *translator) started(p codexformat.Params) {
	var info struct {
		ID   string `json:"id"`
		Root string `json:"rootTurnId"`
	}
	if !codexformat.Lenient(p.Info, &info) || info.ID == "" || p.Thread == "" {
		return
	}
	if t.state.Root == "" {
		t.state.Root = p.Thread
	}
	if p.Thread == t.state.Root {
		t.state.Begun = true
		info.ID = codexformat.First(info.Root, info.ID) // a review's items and end name the turn that requested it
	} else if !t.state.Begun {
		return // belongs to an earlier run
	}
	if turn := (codexformat.Turn{Thread: p.Thread, ID: info.ID}); !slices.Contains(t.state.Turns, turn) {
		t.state.Turns = append(t.state.Turns[max(0, len(t.state.Turns)-ledger.Max):], turn)
	}
}

// completed reads the end of a turn.
func (t *translator) completed(p codexformat.Params, at time.Time) {
	var info struct {
		ID     string          `json:"id"`
		Status string          `json:"status"`
		Error  json.RawMessage `json:"error"`
		Ended  int64           `json:"completedAt"` // seconds
	}
	if !codexformat.Lenient(p.Info, &info) {
		return
	}
	i := slices.Index(t.state.Turns, codexformat.Turn{Thread: p.Thread, ID: info.ID})
	if i < 0 {
		return
	}
	t.state.Turns = slices.Delete(t.state.Turns, i, i+1)
	v := codexformat.Verdict{Status: info.Status, Message: codexformat.Problem(info.Error), MS: info.Ended * 1000, Failure: codexformat.FailureOf(info.Error)}
	t.Emit(t.state.endTurn(place{thread: p.Thread, turn: info.ID, at: at}, v)...)
	if p.Thread == t.state.Root {
		t.state.Verdict = t.judge(v)
	}
	t.settle(at)
}

// judge returns the outcome of a run whose main turn has ended.
func (t *translator) judge(v codexformat.Verdict) *verdictState {
	switch {
	case t.state.Limit != "":
		return &verdictState{Outcome: session.OutcomeFailed, Reason: t.state.Limit, Failure: t.state.Failure}
	case v.Status == codexformat.Completed:
		return &verdictState{Outcome: session.OutcomeCompleted}
	case v.Status == codexformat.Interrupted:
		return &verdictState{Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted}
	}
	return &verdictState{Outcome: session.OutcomeFailed, Reason: v.Message, Failure: v.Failure}
}

// settle ends the run once neither the main turn nor a subagent is running.
func (t *translator) settle(at time.Time) {
	if t.state.Verdict == nil || len(t.state.Turns) > 0 || t.state.Expected.Wait() {
		return
	}
	for _, o := range t.state.Open {
		if o.Block.Type == conversation.Subagent && t.state.Verdict.Outcome == session.OutcomeCompleted {
			return // the run has not begun yet
		}
	}
	v := *t.state.Verdict
	if t.state.Aborted && v.Outcome == session.OutcomeCompleted {
		v = verdictState{Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted}
	}
	t.end(v, at)
}

// end ends the run.
func (t *translator) end(v verdictState, at time.Time) {
	t.Emit(t.state.Cut(at)...)
	for _, w := range t.state.Waiting {
		t.Out.Resolved = append(t.Out.Resolved, w.ID)
	}
	t.state.Waiting = nil
	usage := t.state.Usage
	usage.CostUnknown = true // the agent reports only tokens
	usage.ToolCalls = t.state.ToolCalls
	t.Out.End = &agent.TurnEnd{Outcome: v.Outcome, Reason: v.Reason, Usage: usage, Model: t.state.Model}
	if v.Outcome == session.OutcomeFailed && stdio.RefusesKey(v.Status, v.Reason) {
		t.Out.End.Unauthorized = &agent.Unauthorized{Status: v.Status, URL: v.URL}
	}
	t.state = state{Ended: true}
}

// used reads the usage of a thread, over all of its turns. Its usage before the run is computed
// from the numbers of its first request.
func (t *translator) used(p codexformat.Params, at time.Time) {
	type tokens struct {
		Input  int64 `json:"inputTokens"`
		Output int64 `json:"outputTokens"`
	}
	var u struct {
		Total tokens `json:"total"`
		Last  tokens `json:"last"`
	}
	if !codexformat.Lenient(p.Usage, &u) {
		return
	}
	if t.state.Counted == nil {
		t.state.Counted = map[string]base{}
	}
	b, ok := t.state.Counted[p.Thread]
	if !ok {
		t.forgetUsage()
		b = base{Input: u.Total.Input - u.Last.Input, Output: u.Total.Output - u.Last.Output}
	}
	input, output := max(0, u.Total.Input-b.Input), max(0, u.Total.Output-b.Output)
	t.state.Usage.InputTokens += input - b.RunInput
	t.state.Usage.OutputTokens += output - b.RunOutput
	b.RunInput, b.RunOutput = input, output
	t.state.Counted[p.Thread] = b
	t.Emit(conversation.Event{
		Type: conversation.EventMetadataUpdate, At: at, Data: conversation.MetadataUpdate{
			Usage: conversation.Usage{InputTokens: t.state.Usage.InputTokens, OutputTokens: t.state.Usage.OutputTokens},
			Model: t.state.Model,
		},
	})
}

// forgetUsage forgets threads whose turns have ended, if there are many. If one continues, its
// earlier usage is computed again from its next request.
func (t *translator) forgetUsage() {
	if len(t.state.Counted) < ledger.Max {
		return
	}
	maps.DeleteFunc(t.state.Counted, func(thread string, _ base) bool {
		return !slices.ContainsFunc(t.state.Turns, func(u codexformat.Turn) bool { return u.Thread == thread })
	})
}

// note reads a note of the bridge.
func (t *translator) note(n stdio.Note, at time.Time) {
	own := t.IsRun(n.RunID)
	switch n.Type {
	case stdio.NoteRun:
		if !own {
			return
		}
		var d codexformat.RunData
		codexformat.Lenient(n.Data, &d)
		t.state.Noted = true
		t.state.Root, t.state.Model = n.ID, codexformat.First(d.Model, t.state.Model)
	case stdio.NoteKnown:
		var d codexformat.KnownData
		if codexformat.Lenient(n.Data, &d) && own {
			t.end(verdictState(d), at)
		}
	case stdio.NoteFailed:
		if own {
			t.end(verdictState{Outcome: session.OutcomeFailed, Reason: codexformat.Bounded(n.Message)}, at)
		}
	case stdio.NoteDeadline:
		if own {
			var d codexformat.AskData
			codexformat.Lenient(n.Data, &d)
			t.state.Limit, t.state.Failure = codexformat.Bounded(n.Message), d.Failure
			t.Emit(t.state.deadline(n, at)...)
		}
	case stdio.NoteDied:
		t.state.Died = codexformat.Bounded(n.Message)
	case stdio.NoteDeclined:
		if own {
			t.Settle(&t.state.Expected, n.ID, false)
			t.settle(at)
		}
	case codexformat.NoteAborted:
		t.state.Aborted = t.state.Aborted || own
	case codexformat.NoteAsked, codexformat.NoteAnswered:
		t.Emit(t.state.question(n, at)...)
	}
}

// exit handles the exit of the bridge, and thereby of the agent.
func (t *translator) exit(f agent.Frame) {
	at := f.At
	report, err := agent.ParseExit(f.Data)
	v := verdictState{Outcome: session.OutcomeFailed, Reason: session.ReasonAgentCrashed}
	if err == nil && report.Interrupted {
		v = verdictState{Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted}
	} else {
		t.Emit(conversation.Event{Type: conversation.EventError, At: at, Data: conversation.Problem{
			Code: session.ReasonAgentCrashed, Message: crash(report, t.state.Died),
		}})
	}
	t.end(v, at)
}

// crash describes how the agent ended.
func crash(r agent.ExitReport, died string) string {
	how := "Codex ended with exit code " + fmt.Sprint(r.Code)
	switch {
	case died != "":
		how = "Codex ended: " + died
	case r.Signal != "":
		how = "Codex was ended by a signal: " + r.Signal
	}
	if stderr := strings.TrimSpace(r.Stderr); stderr != "" {
		if excess := len(stderr) - codexformat.MaxRaw; excess > 0 {
			stderr = stderr[excess:]
		}
		how += "\n" + strings.ToValidUTF8(stderr, "")
	}
	return how
}
