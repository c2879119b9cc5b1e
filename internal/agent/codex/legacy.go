package codex

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent/jsonscan"
)

// Rollouts of older versions have no items. They record messages and calls in the form of the
// model's API, in lines with a type and a payload, or, in the oldest, as whole lines. They are read
// so that no part of an old session is lost; the agent itself still resumes them.

// legacy reports whether a rollout is one of an older version.
func legacy(rollout []byte) bool {
	return !bytes.Contains(rollout, []byte(`"item_completed"`)) && !bytes.Contains(rollout, []byte(`"history_mode":"paginated"`))
}

// surroundings is how the agent begins what it says in the user's name.
var surroundings = []string{
	"<environment_context>", "<user_instructions>", "<permissions instructions>", "<turn_aborted>", "<skill>", "# AGENTS.md instructions",
}

// legacy reads a rollout of an older version.
func (p *parser) legacy(data []byte) {
	var t *thread
	calls := map[string]item{} // without a result
	n := 0
	for line := range bytes.Lines(data) {
		n++
		l, ok := decodeLegacy(line)
		if !ok {
			continue
		}
		if l.Type == "session_meta" {
			if t == nil && l.Payload.ID != "" {
				t = p.thread(l.Payload.ID)
				t.main, t.cwd = l.Payload.Parent == "", l.Payload.Cwd
			}
			continue
		}
		if t == nil {
			continue
		}
		ms := l.time().UnixMilli()
		if l.Type == "event_msg" && l.Payload.Type == "turn_aborted" {
			t.over("", l.Payload.verdict(), ms)
			continue
		}
		it, ok := l.item(calls)
		if !ok {
			continue
		}
		if it.id == "" {
			it.id = t.id + "/" + strconv.Itoa(n)
		}
		it.started, it.completed = ms, ms
		switch {
		case it.name == "" || it.kind == kindSearch:
			t.add(it, "")
		case it.status == inProgress:
			calls[it.id] = it
			t.found = append(t.found, &step{ms: ms, what: stepBegin, item: it})
		default:
			t.found = append(t.found, &step{ms: ms, what: stepEnd, item: it})
		}
	}
}

// decodeLegacy reads a line of an older rollout.
func decodeLegacy(line []byte) (record, bool) {
	var l record
	var bare payload
	hasPayload := false
	ok := jsonscan.Fields(line, func(key, value []byte) {
		switch string(key) {
		case "timestamp":
			l.At = jsonscan.Text(value)
		case "type":
			l.Type = jsonscan.Text(value)
		case "payload":
			hasPayload = true
			jsonscan.Fields(value, l.Payload.set)
		}
		bare.set(key, value)
	})
	if ok && !hasPayload {
		l.Payload, l.Type = bare, "response_item"
		if bare.Type == "" {
			l.Type = "session_meta" // the first line of the oldest
		}
	}
	return l, ok
}

// item is what a line says, if it is of use. The result of a call is the call again, with its end.
func (l record) item(calls map[string]item) (item, bool) {
	r := l.Payload
	if l.Type == "compacted" {
		return item{kind: kindCompaction}, true
	}
	if l.Type != "response_item" {
		return item{}, false
	}
	switch r.Type {
	case "message":
		it := item{kind: kindText, id: r.ID, text: texts(r.Content)}
		switch r.Role {
		case "user":
			it.kind = kindUser
			for _, c := range surroundings {
				if strings.HasPrefix(strings.TrimSpace(it.text), c) {
					return item{}, false
				}
			}
			return it, true
		case "assistant":
			return it, true
		}
	case "reasoning":
		it := item{kind: kindThinking, id: r.ID, text: first(paragraphs(r.Summary), texts(r.Content))}
		return it, it.text != ""
	case "web_search_call":
		return item{kind: kindSearch, id: r.ID, name: "web_search", status: completed, input: object("query", jsonscan.Text(jsonscan.Field(r.Action, "query")))}, true
	case "function_call", "custom_tool_call", "local_shell_call":
		it := item{kind: kindDynamic, id: first(r.Call, r.ID), name: first(r.Name, "local_shell"), status: inProgress, input: json.RawMessage(r.Arguments)}
		switch {
		case r.Type == "local_shell_call":
			it.input = jsonscan.Clone(r.Action)
		case r.Type == "custom_tool_call" || !json.Valid(it.input):
			it.input = object("input", first(r.Input, r.Arguments))
		}
		return it, it.id != ""
	case "function_call_output", "custom_tool_call_output", "local_shell_call_output":
		it, ok := calls[r.Call]
		delete(calls, r.Call)
		it.status, it.output = result(r.Output)
		return it, ok
	}
	return item{}, false
}

// paragraphs are the parts of a summary.
func paragraphs(raw []byte) string {
	var parts []string
	jsonscan.Elements(raw, func(part []byte) { parts = append(parts, jsonscan.Text(jsonscan.Field(part, "text"))) })
	return strings.Join(parts, paragraph)
}

// result is how a call ended: words, parts, or JSON, often inside a string, with an output and an
// exit code.
func result(raw []byte) (status, output string) {
	words := first(jsonscan.Text(raw), texts(raw))
	inside := raw
	if words != "" {
		inside = []byte(words)
	}
	if content := jsonscan.Field(inside, "content"); content != nil {
		status = completed
		if string(jsonscan.Field(inside, "success")) == "false" {
			status = failed
		}
		return status, first(jsonscan.Text(content), texts(content))
	}
	said := jsonscan.Field(inside, "output")
	if said == nil {
		return completed, words
	}
	if exit := number(jsonscan.Field(jsonscan.Field(inside, "metadata"), "exit_code")); exit != 0 {
		return failed, exited(int(exit), jsonscan.Text(said))
	}
	return completed, jsonscan.Text(said)
}
