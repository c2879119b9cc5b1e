package oldrollout

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/agent/jsonscan"
)

// Rollout is the content of a file of an older version.
type Rollout struct {
	Thread string // empty if the file names none; then nothing in it can be used
	Parent string // of a subagent's thread
	Dir    string
	Steps  []Step
}

// Step is one step of the thread.
type Step struct {
	At   int64 // in milliseconds
	Kind Kind
	Item codexformat.Item    // for all kinds except Aborted
	End  codexformat.Verdict // for Aborted
}

// Kind is the kind of a step.
type Kind int

// The kinds of steps.
const (
	Whole   Kind = iota // an item that is complete at once
	Begun               // a call, without its result
	Ended               // the call again, with its result
	Aborted             // the turn was aborted
)

// inProgress is the status of a call without its result.
const inProgress = "inProgress"

// Is reports whether a rollout was written by an older version.
func Is(rollout []byte) bool {
	return !bytes.Contains(rollout, []byte(`"item_completed"`)) && !bytes.Contains(rollout, []byte(`"history_mode":"paginated"`))
}

// surroundings lists the beginnings of messages that the agent sends in the user's name.
var surroundings = []string{
	"<environment_context>", "<user_instructions>", "<permissions instructions>", "<turn_aborted>", "<skill>", "# AGENTS.md instructions",
}

// Read reads a rollout of an older version. It skips lines that it does not understand.
func Read(data []byte) Rollout {
	var out Rollout
	calls := map[string]codexformat.Item{} // calls without a result
	n := 0
	for line := range bytes.Lines(data) {
		n++
		l, ok := decode(line)
		if !ok {
			continue
		}
		if l.Type == "session_meta" {
			if out.Thread == "" {
				out.Thread, out.Parent, out.Dir = l.Payload.ID, l.Payload.Parent, l.Payload.Cwd
			}
			continue
		}
		if out.Thread == "" {
			continue
		}
		at := l.Time().UnixMilli()
		if l.Type == "event_msg" && l.Payload.Type == "turn_aborted" {
			out.Steps = append(out.Steps, Step{At: at, Kind: Aborted, End: l.Payload.Verdict()})
			continue
		}
		it, ok := item(l, calls)
		if !ok {
			continue
		}
		if it.ID == "" {
			it.ID = out.Thread + "/" + strconv.Itoa(n)
		}
		it.Started, it.Completed = at, at
		kind := Ended
		switch {
		case it.Name == "" || it.Kind == codexformat.KindSearch:
			kind = Whole
		case it.Status == inProgress:
			kind = Begun
			calls[it.ID] = it
		}
		out.Steps = append(out.Steps, Step{At: at, Kind: kind, Item: it})
	}
	return out
}

// decode decodes a line.
func decode(line []byte) (codexformat.Record, bool) {
	var l codexformat.Record
	var bare codexformat.Payload
	hasPayload := false
	ok := jsonscan.Fields(line, func(key, value []byte) {
		switch string(key) {
		case "timestamp":
			l.At = jsonscan.Text(value)
		case "type":
			l.Type = jsonscan.Text(value)
		case "payload":
			hasPayload = true
			jsonscan.Fields(value, l.Payload.Set)
		}
		bare.Set(key, value)
	})
	if ok && !hasPayload {
		l.Payload, l.Type = bare, "response_item"
		if bare.Type == "" {
			l.Type = "session_meta" // first line in the oldest versions
		}
	}
	return l, ok
}

// item returns the item of a line, if it is used. The result of a call is returned as the call with
// its end.
func item(l codexformat.Record, calls map[string]codexformat.Item) (codexformat.Item, bool) {
	r := l.Payload
	if l.Type == "compacted" {
		return codexformat.Item{Kind: codexformat.KindCompaction}, true
	}
	if l.Type != "response_item" {
		return codexformat.Item{}, false
	}
	switch r.Type {
	case "message":
		it := codexformat.Item{Kind: codexformat.KindText, ID: r.ID, Text: codexformat.Texts(r.Content)}
		switch r.Role {
		case "user":
			it.Kind = codexformat.KindUser
			for _, c := range surroundings {
				if strings.HasPrefix(strings.TrimSpace(it.Text), c) {
					return codexformat.Item{}, false
				}
			}
			return it, true
		case "assistant":
			return it, true
		}
	case "reasoning":
		it := codexformat.Item{Kind: codexformat.KindThinking, ID: r.ID, Text: codexformat.First(paragraphs(r.Summary), codexformat.Texts(r.Content))}
		return it, it.Text != ""
	case "web_search_call":
		return codexformat.Item{Kind: codexformat.KindSearch, ID: r.ID, Name: "web_search", Status: codexformat.Completed, Input: codexformat.Object("query", jsonscan.Text(jsonscan.Field(r.Action, "query")))}, true
	case "function_call", "custom_tool_call", "local_shell_call":
		it := codexformat.Item{Kind: codexformat.KindDynamic, ID: codexformat.First(r.Call, r.ID), Name: codexformat.First(r.Name, "local_shell"), Status: inProgress, Input: json.RawMessage(r.Arguments)}
		switch {
		case r.Type == "local_shell_call":
			it.Input = jsonscan.Clone(r.Action)
		case r.Type == "custom_tool_call" || !json.Valid(it.Input):
			it.Input = codexformat.Object("input", codexformat.First(r.Input, r.Arguments))
		}
		return it, it.ID != ""
	case "function_call_output", "custom_tool_call_output", "local_shell_call_output":
		it, ok := calls[r.Call]
		delete(calls, r.Call)
		it.Status, it.Output = result(r.Output)
		return it, ok
	}
	return codexformat.Item{}, false
}

// paragraphs joins the parts of a summary.
func paragraphs(raw []byte) string {
	var parts []string
	jsonscan.Elements(raw, func(part []byte) { parts = append(parts, jsonscan.Text(jsonscan.Field(part, "text"))) })
	return strings.Join(parts, codexformat.Paragraph)
}

// result returns how a call ended, from text, parts, or JSON, often inside a string, with an output
// and an exit code.
func result(raw []byte) (status, output string) {
	words := codexformat.First(jsonscan.Text(raw), codexformat.Texts(raw))
	inside := raw
	if words != "" {
		inside = []byte(words)
	}
	if content := jsonscan.Field(inside, "content"); content != nil {
		status = codexformat.Completed
		if string(jsonscan.Field(inside, "success")) == "false" {
			status = codexformat.Failed
		}
		return status, codexformat.First(jsonscan.Text(content), codexformat.Texts(content))
	}
	printed := jsonscan.Field(inside, "output")
	if printed == nil {
		return codexformat.Completed, words
	}
	if exit := codexformat.Number(jsonscan.Field(jsonscan.Field(inside, "metadata"), "exit_code")); exit != 0 {
		return codexformat.Failed, codexformat.Exited(int(exit), jsonscan.Text(printed))
	}
	return codexformat.Completed, jsonscan.Text(printed)
}
