package claude

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/jsonscan"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// record is one line of the stream or of a transcript, opened as far as both have it. Its fields
// are raw JSON inside the line. The two name some things differently; here they have one name.
type record struct {
	raw     []byte
	kind    []byte // type
	subtype []byte
	uuid    []byte
	at      []byte // timestamp
	agent   []byte // agent_id, agentId: the subagent that speaks
	parent  []byte // parent_tool_use_id: the call that the subagent answers
	message []byte // user, assistant
	content []byte // system lines of a transcript
	event   []byte // stream_event
	body    []byte // attachment, request, response, entries: what the type is about

	index        []byte // apiBlockIndex: the place of an assistant line's block in its message
	isMeta       bool   // written for the model, by no person
	isReplay     bool   // the agent has read what was written to its stdin
	isSynthetic  bool   // user line that the agent made
	isSummary    bool   // what a compaction has left of the conversation
	aborted      bool   // assistant: aborted by an interrupt
	apiError     bool   // assistant: the model's server failed
	localCommand bool   // assistant: the output of a command such as /cost
	notice       bool   // user: a background task has ended
	async        bool   // user: the result says that the subagent works on in the background
}

// decode opens a line. It reports false where the line is not a JSON object with a type.
func decode(line []byte) (record, bool) {
	r := record{raw: line}
	ok := jsonscan.Fields(line, func(key, value []byte) {
		switch string(key) {
		case "type":
			r.kind = value
		case "subtype":
			r.subtype = value
		case "uuid":
			r.uuid = value
		case "timestamp":
			r.at = value
		case "agent_id", "agentId":
			r.agent = value
		case "parent_tool_use_id":
			r.parent = value
		case "message":
			r.message = value
		case "content":
			r.content = value
		case "event":
			r.event = value
		case "attachment", "request", "response", "entries":
			r.body = value
		case "apiBlockIndex":
			r.index = value
		case "isMeta":
			r.isMeta = jsonscan.IsTrue(value)
		case "isReplay":
			r.isReplay = jsonscan.IsTrue(value)
		case "isSynthetic":
			r.isSynthetic = jsonscan.IsTrue(value)
		case "isCompactSummary":
			r.isSummary = jsonscan.IsTrue(value)
		case "aborted", "isAbortedMidStream":
			r.aborted = jsonscan.IsTrue(value)
		case "is_api_error_message", "isApiErrorMessage":
			r.apiError = jsonscan.IsTrue(value)
		case "local_command_source":
			r.localCommand = len(value) > 0 && value[0] == '"'
		case "origin":
			r.notice = jsonscan.Is(jsonscan.Field(value, "kind"), "task-notification")
		case "tool_use_result", "toolUseResult":
			r.async = bytes.HasPrefix(value, []byte(`{"isAsync":true`)) || (value[0] == '{' && jsonscan.IsTrue(jsonscan.Field(value, "isAsync")))
		}
	})
	return r, ok && len(r.kind) > 2 && r.kind[0] == '"'
}

// time is when the line says it was written, or else at.
func (r record) time(at time.Time) time.Time {
	if len(r.at) > 2 {
		if t, err := time.Parse(time.RFC3339, string(r.at[1:len(r.at)-1])); err == nil {
			return t.UTC()
		}
	}
	return at.UTC()
}

// message is the part of a user or assistant line that the model's API knows.
type message struct {
	id      []byte
	model   []byte
	content []byte // a string or an array of parts
}

func decodeMessage(raw []byte) message {
	var m message
	jsonscan.Fields(raw, func(key, value []byte) {
		switch string(key) {
		case "id":
			m.id = value
		case "model":
			m.model = value
		case "content":
			m.content = value
		}
	})
	return m
}

// part is one element of a message's content.
type part struct {
	raw       []byte
	kind      []byte // type
	text      []byte // text, thinking
	id        []byte // tool_use
	name      []byte
	input     []byte
	toolUseID []byte // tool_result
	content   []byte
	isError   bool
}

func decodePart(raw []byte) part {
	p := part{raw: raw}
	jsonscan.Fields(raw, func(key, value []byte) {
		switch string(key) {
		case "type":
			p.kind = value
		case "text", "thinking":
			p.text = value
		case "id":
			p.id = value
		case "name":
			p.name = value
		case "input":
			p.input = value
		case "tool_use_id":
			p.toolUseID = value
		case "content":
			p.content = value
		case "is_error":
			p.isError = jsonscan.IsTrue(value)
		}
	})
	return p
}

// isTool reports whether the part is a call, of a tool here or on the model's side.
func (p part) isTool() bool {
	return jsonscan.Is(p.kind, "tool_use") || jsonscan.Is(p.kind, "server_tool_use") || jsonscan.Is(p.kind, "mcp_tool_use")
}

// isResult reports whether the part is what a call came to.
func (p part) isResult() bool {
	return bytes.HasSuffix(p.kind, []byte(`tool_result"`)) && len(p.toolUseID) > 2
}

// words are the texts of a message's content; images and the like are named. Results are left out.
func words(content []byte) string {
	if len(content) > 0 && content[0] == '"' {
		return jsonscan.Text(content)
	}
	var out []string
	jsonscan.Elements(content, func(raw []byte) {
		switch p := decodePart(raw); {
		case jsonscan.Is(p.kind, "text"):
			if text := jsonscan.Text(p.text); !stdio.IsReminder(text) {
				out = append(out, text)
			}
		case !p.isResult():
			out = append(out, describe(raw))
		}
	})
	return strings.Join(out, "\n")
}

// describe names a part that is not text.
func describe(raw []byte) string {
	kind, size := "attachment", 0
	jsonscan.Fields(raw, func(key, value []byte) {
		switch string(key) {
		case "type":
			kind = jsonscan.Text(value)
		case "source":
			if t := jsonscan.Field(value, "media_type"); len(t) > 2 {
				kind += " " + jsonscan.Text(t)
			}
			size = len(jsonscan.Field(value, "data"))
		}
	})
	if size > 0 {
		return "[" + kind + ", " + strconv.Itoa(size/4*3) + " bytes]"
	}
	return "[" + kind + "]"
}

// output is the content of a tool result as a block keeps it: the agent's own JSON, with the bytes
// of images left out.
func output(content []byte) json.RawMessage {
	if len(content) == 0 || content[0] != '[' || !bytes.Contains(content, []byte(`"base64"`)) {
		return jsonscan.Clone(content)
	}
	var out []byte
	ok := jsonscan.Elements(content, func(raw []byte) {
		out = append(out, ',')
		if source := jsonscan.Field(raw, "source"); jsonscan.Is(jsonscan.Field(source, "type"), "base64") {
			out = appendWithout(out, raw, source)
			return
		}
		out = append(out, raw...)
	})
	if !ok || len(out) == 0 {
		return jsonscan.Clone(content)
	}
	out[0] = '['
	return append(out, ']')
}

// images are those in the content of a tool result.
func images(content []byte) []conversation.ImageData {
	if len(content) == 0 || content[0] != '[' || !bytes.Contains(content, []byte(`"base64"`)) {
		return nil
	}
	var out []conversation.ImageData
	jsonscan.Elements(content, func(raw []byte) {
		source := jsonscan.Field(raw, "source")
		if len(out) >= conversation.MaxBlockImages || !jsonscan.Is(jsonscan.Field(source, "type"), "base64") {
			return
		}
		if i, ok := conversation.DecodeImage(jsonscan.Text(jsonscan.Field(source, "data"))); ok {
			out = append(out, i)
		}
	})
	return out
}

// appendWithout writes a part whose source is described instead of carried.
func appendWithout(out, raw, source []byte) []byte {
	at := bytes.Index(raw, source)
	out = append(out, raw[:at]...)
	out = append(out, `{"type":"omitted","media_type":`...)
	if t := jsonscan.Field(source, "media_type"); len(t) > 2 {
		out = append(out, t...)
	} else {
		out = append(out, "null"...)
	}
	out = append(out, `,"bytes":`...)
	out = strconv.AppendInt(out, int64(len(jsonscan.Field(source, "data"))/4*3), 10)
	return append(append(out, '}'), raw[at+len(source):]...)
}

// What the agent writes into user lines for itself.
const (
	interruptMark  = "[Request interrupted"
	notAllowedMark = "The user doesn't want to proceed with this tool use."
	unfinishedMark = "[Tool call did not complete"
	lostMark       = "[Tool call interrupted: the session ended"
	uncopiedMark   = "[Tool call result not in this copy"
	noReply        = "No response requested."
	stdoutTag      = "local-command-stdout"
	stderrTag      = "local-command-stderr"
	commandTag     = "command-name"
	noticeTag      = "task-notification"
)

// tagged returns the text between <name> and </name> in s, and whether both are there.
func tagged(s, name string) (string, bool) {
	_, rest, ok := strings.Cut(s, "<"+name+">")
	if !ok {
		return "", false
	}
	inside, _, ok := strings.Cut(rest, "</"+name+">")
	return inside, ok
}

// opens reports whether s begins with <name>.
func opens(s, name string) bool {
	return len(s) > len(name)+1 && s[0] == '<' && s[1:1+len(name)] == name && s[1+len(name)] == '>'
}

// said is a user line as the person wrote it: a command is reassembled.
func said(s string) string {
	if !opens(s, commandTag) {
		return s
	}
	name, ok := tagged(s, commandTag)
	if !ok {
		return s
	}
	if args, _ := tagged(s, "command-args"); args != "" {
		name += " " + args
	}
	return name
}

// printed is the output of a command such as /cost, and whether s is one.
func printed(s string) (string, bool) {
	for _, tag := range []string{stdoutTag, stderrTag} {
		if opens(s, tag) {
			if inside, ok := tagged(s, tag); ok {
				return strings.TrimSpace(inside), true
			}
		}
	}
	return "", false
}

// notice is what the agent sends itself when a background task has ended.
type notice struct {
	task, toolUseID, status, summary string
}

func parseNotice(s string) notice {
	var n notice
	n.task, _ = tagged(s, "task-id")
	n.toolUseID, _ = tagged(s, "tool-use-id")
	n.status, _ = tagged(s, "status")
	n.summary, _ = tagged(s, "summary")
	return n
}

// isSubagent reports whether a task has an id as subagents have: an a, a name perhaps, and 16 hex
// digits. A notice of its end may come when nothing else is known of it any more.
func isSubagent(task string) bool {
	const digits = 16
	name, ok := strings.CutPrefix(task, "a")
	if !ok || len(name) < digits || (len(name) > digits && name[len(name)-digits-1] != '-') {
		return false
	}
	return strings.Trim(name[len(name)-digits:], "0123456789abcdef") == ""
}

// noted reports whether a system line is a remark to people: its words are a block.
func (r record) noted() bool {
	switch string(r.subtype) {
	case `"informational"`, `"model_fallback"`, `"model_consent_fallback"`, `"model_refusal_fallback"`, `"model_refusal_no_fallback"`:
		return len(r.content) > 2 && r.content[0] == '"' && !r.isMeta
	}
	return false
}

// hooked is what an attachment says in the name of a hook, as the stream words it; empty for others.
func hooked(attachment []byte) string {
	if !jsonscan.Is(jsonscan.Field(attachment, "type"), "hook_system_message") {
		return ""
	}
	words := jsonscan.Text(jsonscan.Field(attachment, "content"))
	if words == "" {
		return ""
	}
	return jsonscan.Text(jsonscan.Field(attachment, "hookName")) + " says: " + words
}

// outcome is the status that the end of a task gives its block.
func outcome(status string) conversation.BlockStatus {
	switch status {
	case "completed":
		return conversation.Success
	case "failed":
		return conversation.Failed
	}
	return conversation.Aborted // stopped, killed
}

// bounded is at most maxRaw bytes of data as text.
func bounded(data []byte) string {
	return strings.ToValidUTF8(string(data[:min(len(data), maxRaw)]), "\uFFFD")
}
