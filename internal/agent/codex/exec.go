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

// recording reads a stream that was recorded without a bridge. In addition to the lines of the
// app-server it reads those of codex exec --json, which runs one prompt: another, poorer form of the
// stream.
type recording struct{ *translator }

// Translate reads one frame.
func (r recording) Translate(f agent.Frame) (agent.Translation, error) {
	return r.Read(f, r.state.Ended, r.line, r.exit), nil
}

func (r recording) line(f agent.Frame) {
	if !r.exec(f, f.At) {
		r.translator.line(f)
	}
}

// execLine is a line of codex exec --json. Lines of the app-server have a method or an ID.
type execLine struct {
	ID      json.RawMessage `json:"id"`
	Method  json.RawMessage `json:"method"`
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
func (r recording) exec(f agent.Frame, at time.Time) bool {
	var l execLine
	if !codexformat.Lenient(f.Data, &l) || len(l.ID) > 0 || len(l.Method) > 0 {
		return false
	}
	where := place{thread: r.state.Root, turn: execTurn, at: at}
	switch l.Type {
	case "thread.started":
		// The agent numbers items from 0 in every process, and several processes continue one
		// thread.
		r.state.Root = l.Thread
		r.state.Exec = l.Thread + "/" + strconv.FormatInt(at.UnixMilli(), 36) + "/"
	case "turn.started":
		r.state.Begun = true
	case "item.started", "item.updated":
		if it, ok := r.execItem(l.Item); ok {
			r.Emit(r.state.begin(where, it)...)
		}
	case "item.completed":
		if it, ok := r.execItem(l.Item); ok {
			r.Emit(r.state.finish(where, it)...)
		}
	case "error":
		if strings.HasPrefix(l.Message, "Reconnecting") {
			r.Emit(r.state.retry(where, codexformat.Bounded(l.Message), 0)...)
		}
	case "turn.completed":
		for _, o := range slices.Clone(r.state.Open) {
			if o.Block.Type == conversation.Subagent {
				r.Emit(r.state.Close(o, conversation.Success, at)) // the stream does not say how it ended
			}
		}
		r.execEnd(l, codexformat.Verdict{Status: codexformat.Completed}, at)
	case "turn.failed":
		r.execEnd(l, codexformat.Verdict{Status: codexformat.Failed, Message: codexformat.Problem(l.Error)}, at)
	default:
		return false
	}
	return true
}

// execItem reads an item and makes its id one of the thread.
func (r recording) execItem(raw json.RawMessage) (codexformat.Item, bool) {
	it, ok := codexformat.DecodeItem(raw)
	it.ID = r.state.Exec + it.ID
	return it, ok
}

func (r recording) execEnd(l execLine, v codexformat.Verdict, at time.Time) {
	r.Emit(r.state.over(place{thread: r.state.Root, turn: execTurn, at: at}, v)...)
	r.state.Usage = session.Usage{InputTokens: l.Usage.Input, OutputTokens: l.Usage.Output}
	r.end(*r.judge(v), at)
}
