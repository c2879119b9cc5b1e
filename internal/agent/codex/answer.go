package codex

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// kindAsk is the kind of the item that we add for a question to the user. The stream has no item
// for such a question.
const kindAsk = "requestUserInput"

// waiting is an open question.
type waiting struct {
	ID      string          `json:"id"`
	Request json.RawMessage `json:"request"`
	// Asks is the id of the askTool call that asks the question.
	Asks   string `json:"asks,omitempty"`
	Thread string `json:"thread,omitempty"`
}

// asked reads a request of the agent. The bridge handles requests that are not questions.
func (t *translator) asked(l codexformat.Frame, at time.Time) {
	r := l.Params
	q, ok := codexformat.Question(l)
	if !ok {
		return
	}
	w := waiting{ID: q.ID, Request: l.ID}
	where := t.state.conversation(r.Thread)
	switch l.Method {
	case codexformat.AskFiles:
		if o := t.state.find(where, r.ItemID); o != nil && len(o.Block.Input) > 0 {
			q.Input = o.Block.Input
		}
	case codexformat.AskServer:
		for _, o := range t.state.Open {
			if o.Conversation == where && o.Block.Name == q.ToolName {
				q.ToolUseID = o.Block.ID
			}
		}
	case codexformat.AskUser:
		w.Asks, w.Thread = r.ItemID, r.Thread
		t.Emit(t.state.begin(place{thread: r.Thread, turn: r.Turn, at: at}, askItem(r.ItemID, q.Input, 0))...)
	}
	t.state.Waiting = append(t.state.Waiting, w)
	t.Out.Questions = append(t.Out.Questions, q)
}

// resolved reads the report that a request no longer waits.
func (t *translator) resolved(request []byte, at time.Time) {
	kept := t.state.Waiting[:0]
	for _, w := range t.state.Waiting {
		if string(w.Request) == string(request) {
			t.Out.Resolved = append(t.Out.Resolved, w.ID)
			if o := t.state.find(t.state.conversation(w.Thread), w.Asks); o != nil && !t.state.Noted {
				t.Emit(t.state.Close(o, conversation.Success, at))
			}
			continue
		}
		kept = append(kept, w)
	}
	t.state.Waiting = kept
}

// askItem returns the item for a call of askTool. The agent reports no item for such a call.
func askItem(id string, input json.RawMessage, ms int64) codexformat.Item {
	return codexformat.Item{Kind: kindAsk, ID: id, Name: codexformat.AskTool, Input: input, Started: ms}
}

// question reads the bridge's note of a question to the user.
func (r *reader) question(n stdio.Note, at time.Time) []conversation.Event {
	var d codexformat.AskData
	if !codexformat.Lenient(n.Data, &d) || n.ID == "" {
		return nil
	}
	p := place{thread: d.Thread, turn: d.Turn, at: at}
	it := askItem(n.ID, d.Input, d.At)
	if n.Type == codexformat.NoteAsked {
		return r.begin(p, it)
	}
	if r.find(r.conversation(p.thread), it.ID) == nil {
		return nil
	}
	it.Completed, it.Output = d.At, string(d.Result)
	return r.finish(p, it)
}

// deadline shows the reason why the bridge has aborted a turn.
func (r *reader) deadline(n stdio.Note, at time.Time) []conversation.Event {
	var d codexformat.AskData
	if !codexformat.Lenient(n.Data, &d) || d.Turn == "" {
		return nil
	}
	p := place{thread: d.Thread, turn: d.Turn, at: at}
	return ledger.Whole(r.conversation(p.thread), conversation.Block{
		ID: d.Turn + "/deadline", Type: conversation.System, Status: conversation.Complete,
		CreatedAt: p.created(d.At), Subtype: "error", Message: codexformat.Bounded(n.Message),
	}, at)
}

// Answer returns the input that answers a question through the bridge. The message of a rejection
// is sent to the agent as a user message.
func (Adapter) Answer(q agent.Question, a agent.Answer) ([]byte, error) {
	result, err := answer(q, a)
	if err != nil {
		return nil, fmt.Errorf("answer question %s: %w", q.ID, err)
	}
	data, err := json.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("answer question %s: %w", q.ID, err)
	}
	c := stdio.Command{Type: stdio.Answer, ID: q.ID, Data: data}
	if a.Decision == agent.DecisionReject {
		c.Content = a.Message
	}
	return c.Encode()
}

func answer(q agent.Question, a agent.Answer) (map[string]any, error) {
	allowed := false
	switch a.Decision {
	case agent.DecisionOnce, agent.DecisionSession, agent.DecisionAlways:
		allowed = true
	case agent.DecisionReject:
	default:
		return nil, fmt.Errorf("there is no decision %q", a.Decision)
	}
	switch {
	case q.Kind == agent.Inquiry:
		return inquiryAnswer(q, a, allowed)
	case strings.HasPrefix(q.ToolName, "mcp__"):
		action := map[bool]string{true: "accept", false: "decline"}[allowed]
		result := map[string]any{"action": action, "content": map[string]any{}}
		if a.Decision == agent.DecisionSession || a.Decision == agent.DecisionAlways {
			result["_meta"] = map[string]any{"persist": a.Decision}
		}
		return result, nil
	case q.ToolName == "request_permissions":
		granted := json.RawMessage(`{}`)
		if allowed {
			granted = codexformat.OrNull(q.Suggestions)
		}
		scope := "session"
		if a.Decision == agent.DecisionOnce || !allowed {
			scope = "turn"
		}
		return map[string]any{"permissions": granted, "scope": scope}, nil
	}
	switch {
	case !allowed:
		return map[string]any{"decision": "decline"}, nil
	case a.Decision == agent.DecisionOnce:
		return map[string]any{"decision": "accept"}, nil
	case a.Decision == agent.DecisionAlways && len(q.Suggestions) > 0 && string(q.Suggestions) != "null":
		return map[string]any{"decision": map[string]any{
			"acceptWithExecpolicyAmendment": map[string]any{"execpolicy_amendment": q.Suggestions},
		}}, nil
	}
	return map[string]any{"decision": "acceptForSession"}, nil
}

// inquiryAnswer returns the user's answers, or none.
func inquiryAnswer(q agent.Question, a agent.Answer, allowed bool) (map[string]any, error) {
	var input struct {
		Questions json.RawMessage `json:"questions"`
	}
	if err := json.Unmarshal(q.Input, &input); err != nil {
		return nil, fmt.Errorf("the question's input: %w", err)
	}
	answers := map[string]any{}
	for _, ask := range codexformat.AsksOf(input.Questions) {
		reply, ok := a.Answers[ask.Question]
		switch {
		case !allowed && a.Message != "":
			answers[ask.ID] = map[string]any{"answers": []string{a.Message}}
		case !allowed:
		case !ok:
			return nil, fmt.Errorf("there is no answer to %q", ask.Question)
		default:
			answers[ask.ID] = map[string]any{"answers": reply.Texts()}
		}
	}
	return map[string]any{"answers": answers}, nil
}
