package codex

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// execLine is a line of codex exec --json, which runs one prompt: another, poorer form of the
// stream. The bridge does not use it; it is read so that what others have recorded can be.
type execLine struct {
	Type    string          `json:"type"`
	Thread  string          `json:"thread_id"`
	Item    json.RawMessage `json:"item"`
	Error   json.RawMessage `json:"error"`
	Message string          `json:"message"`
	Usage   struct {
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
	} `json:"usage"`
}

// execTurn is the id of the one turn that such a stream has.
const execTurn = "exec"

// exec reads a line of codex exec --json and reports whether it is one.
func (t *translator) exec(f agent.Frame, at time.Time) bool {
	var l execLine
	if !codexformat.Lenient(f.Data, &l) {
		return false
	}
	where := place{thread: t.state.Root, turn: execTurn, at: at}
	switch l.Type {
	case "thread.started":
		// The agent numbers items from 0 in every process, and several processes continue one
		// thread.
		t.state.Root = l.Thread
		t.state.Exec = l.Thread + "/" + strconv.FormatInt(at.UnixMilli(), 36) + "/"
	case "turn.started":
		t.state.Begun = true
	case "item.started", "item.updated":
		if it, ok := t.execItem(l.Item); ok {
			t.Emit(t.state.begin(where, it)...)
		}
	case "item.completed":
		if it, ok := t.execItem(l.Item); ok {
			t.Emit(t.state.finish(where, it)...)
		}
	case "error":
		if strings.HasPrefix(l.Message, "Reconnecting") {
			t.Emit(t.state.retry(where, codexformat.Bounded(l.Message), 0)...)
		}
	case "turn.completed":
		for _, o := range slices.Clone(t.state.Open) {
			if o.Block.Type == conversation.Subagent {
				t.Emit(t.state.Close(o, conversation.Success, at)) // the stream does not say how it ended
			}
		}
		t.execEnd(l, codexformat.Verdict{Status: codexformat.Completed}, at)
	case "turn.failed":
		t.execEnd(l, codexformat.Verdict{Status: codexformat.Failed, Message: codexformat.Problem(l.Error)}, at)
	default:
		return false
	}
	return true
}

// execItem reads an item and makes its id one of the thread.
func (t *translator) execItem(raw json.RawMessage) (codexformat.Item, bool) {
	it, ok := codexformat.DecodeItem(raw)
	it.ID = t.state.Exec + it.ID
	return it, ok
}

func (t *translator) execEnd(l execLine, v codexformat.Verdict, at time.Time) {
	t.Emit(t.state.over(place{thread: t.state.Root, turn: execTurn, at: at}, v)...)
	t.state.Usage = session.Usage{InputTokens: l.Usage.Input, OutputTokens: l.Usage.Output}
	t.end(*t.judge(v), at)
}
