package codexformat

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/overwinter-dev/overwinter/internal/agent/jsonscan"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// The kinds of item that are distinguished, as the stream names them.
const (
	KindUser       = "userMessage"
	KindText       = "agentMessage"
	KindPlan       = "plan"
	KindThinking   = "reasoning"
	KindCommand    = "commandExecution"
	KindFiles      = "fileChange"
	kindMCP        = "mcpToolCall"
	KindDynamic    = "dynamicToolCall"
	KindCollab     = "collabAgentToolCall"
	kindExecCollab = "collabToolCall" // the same kind in the stream of codex exec
	KindSubagent   = "subAgentActivity"
	KindSearch     = "webSearch"
	kindImage      = "imageView"
	kindGenerate   = "imageGeneration"
	kindSleep      = "sleep"
	KindCompaction = "contextCompaction"
)

// The states of an item.
const (
	Completed   = "completed"
	Failed      = "failed"
	Declined    = "declined"
	Interrupted = "interrupted"
)

// Rejected is the result of a call that was not allowed. The agent's transcript contains it in
// another form, its stream not at all.
const Rejected = "rejected by user"

// Item is a part of a turn, with the fields that stream and transcript have in common.
type Item struct {
	Kind   string
	ID     string
	Status string
	// Unix time in milliseconds; 0 if unknown.
	Started, Completed int64

	Client string // clientID of a user message
	Text   string // of messages and reasoning

	Name   string // of tools
	Input  json.RawMessage
	Output string
	Images []conversation.ImageData // images in the output
	// Child is the thread of a subagent that was started.
	Child string
}

// wire is an item as encoded in the stream, in camel case, or in a rollout, in snake case. Raw
// values alias the line.
type wire struct {
	kind, id, status   string
	started, completed int64
	client, text       string
	content, raw       []byte
	summary            []string

	command     []byte
	cwd, output string
	exit        string // the exit code

	changes []byte

	server, tool, namespace       string
	arguments, result, err, items []byte

	receivers []string
	prompt    string

	action, thread, agentPath string

	query, file, revised string
	duration             []byte
}

func (w *wire) set(key, value []byte) {
	switch string(key) {
	case "type":
		w.kind = jsonscan.Text(value)
	case "id":
		w.id = jsonscan.Text(value)
	case "status":
		w.status = jsonscan.Text(value)
	case "startedAtMs":
		w.started = Number(value)
	case "completedAtMs":
		w.completed = Number(value)
	case "clientId", "client_id":
		w.client = jsonscan.Text(value)
	case "content":
		w.content = value
	case "text":
		w.text = jsonscan.Text(value)
	case "summary", "summary_text":
		w.summary = append(w.summary, strs(value)...)
	case "raw_content":
		w.raw = value
	case "command":
		w.command = value
	case "cwd":
		w.cwd = jsonscan.Text(value)
	case "aggregatedOutput", "aggregated_output":
		w.output = jsonscan.Text(value)
	case "exitCode", "exit_code":
		w.exit = string(value)
	case "changes":
		w.changes = value
	case "server":
		w.server = jsonscan.Text(value)
	case "tool":
		w.tool = jsonscan.Text(value)
	case "namespace":
		w.namespace = jsonscan.Text(value)
	case "arguments":
		w.arguments = value
	case "result":
		w.result = value
	case "error":
		w.err = value
	case "contentItems":
		w.items = value
	case "receiverThreadIds", "receiver_thread_ids":
		w.receivers = strs(value)
	case "prompt":
		w.prompt = jsonscan.Text(value)
	case "kind":
		w.action = jsonscan.Text(value)
	case "agentThreadId", "agent_thread_id":
		w.thread = jsonscan.Text(value)
	case "agentPath", "agent_path":
		w.agentPath = jsonscan.Text(value)
	case "query":
		w.query = jsonscan.Text(value)
	case "path":
		w.file = jsonscan.Text(value)
	case "durationMs":
		w.duration = value
	case "revisedPrompt":
		w.revised = jsonscan.Text(value)
	}
}

// strs returns the strings in a list.
func strs(raw []byte) []string {
	var out []string
	jsonscan.Elements(raw, func(value []byte) {
		if len(value) > 0 && value[0] == '"' {
			out = append(out, jsonscan.Text(value))
		}
	})
	return out
}

// Number decodes an integer. It returns 0 if raw is not one.
func Number(raw []byte) int64 {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Lenient decodes JSON and ignores fields of an unexpected type.
func Lenient(data []byte, v any) bool {
	err := json.Unmarshal(data, v)
	var wrong *json.UnmarshalTypeError
	return err == nil || (errors.As(err, &wrong) && wrong.Field != "")
}

// DecodeItem decodes an item. It returns false if raw is not an item that is used.
func DecodeItem(raw []byte) (Item, bool) {
	var w wire
	if !jsonscan.Fields(raw, w.set) || w.id == "" || w.kind == "" {
		return Item{}, false
	}
	it := Item{
		Kind: camel(w.kind), ID: w.id, Status: camel(w.status), Started: w.started, Completed: w.completed, Text: w.text,
	}
	if it.Kind == kindExecCollab {
		it.Kind = KindCollab
	}
	switch it.Kind {
	case KindUser:
		it.Client, it.Text = w.client, Texts(w.content)
	case KindText, KindPlan:
		if it.Text == "" {
			it.Text = Texts(w.content)
		}
	case KindThinking:
		it.Text = First(strings.Join(w.summary, Paragraph), w.text)
		if it.Text == "" {
			it.Text = First(Texts(w.content), Texts(w.raw))
		}
	case KindCommand:
		it.command(w)
	case KindFiles:
		it.files(w)
	case kindMCP, KindDynamic:
		it.call(w)
	case KindCollab:
		it.collab(w)
	case KindSubagent:
		it.Name = spawnAgent
		it.Child = w.thread
		it.Input = Object("path", w.agentPath)
		it.Status = camel(w.action)
	case KindSearch:
		it.Name, it.Input = "web_search", Object("query", w.query)
	case kindImage:
		it.Name, it.Input = "view_image", Object("path", filePath(w.file))
	case kindGenerate:
		it.Name, it.Input = "image_generation", Object("prompt", w.revised)
		if i, ok := conversation.DecodeImage(jsonscan.Text(w.result)); ok {
			it.Images = append(it.Images, i)
		}
	case kindSleep:
		it.Name, it.Input = "sleep", Object("durationMs", OrNull(w.duration))
	case KindCompaction:
	default:
		return Item{}, false
	}
	return it, true
}

// spawnAgent is the tool that starts a subagent.
const spawnAgent = "spawn_agent"

// Paragraph separates the parts of a summary.
const Paragraph = "\n\n"

func (it *Item) command(w wire) {
	it.Name = "exec_command"
	it.Input = Object("command", script(w.command), "cwd", filePath(w.cwd))
	it.Output = persisted(w.output)
	switch exit, err := strconv.Atoi(w.exit); {
	case it.Status == Declined:
		it.Output = Rejected
	case err == nil && exit != 0:
		it.Output = Exited(exit, it.Output)
	}
}

// Exited returns the output of a failed command.
func Exited(code int, output string) string {
	return "Process exited with code " + strconv.Itoa(code) + "\nOutput:\n" + output
}

// persisted returns the output of a command as a rollout contains it: without the middle if it is
// long.
func persisted(s string) string {
	const (
		limit = 64 << 10
		mark  = "\n... command output truncated for persistence ...\n"
		side  = (limit - len(mark)) / 2
	)
	if len(s) <= limit {
		return s
	}
	head, tail := side, len(s)-side
	for !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return s[:head] + mark + s[tail:]
}

// change is the change that a patch makes to a file.
type change struct {
	Path string `json:"path"`
	Kind string `json:"kind"` // add, update or delete
	Move string `json:"movePath,omitempty"`
	Diff string `json:"diff,omitempty"` // the text of an added or deleted file
}

func (it *Item) files(w wire) {
	it.Name = "apply_patch"
	changes := streamChanges(w.changes)
	if changes == nil {
		changes = rolloutChanges(w.changes)
	}
	slices.SortFunc(changes, func(a, b change) int { return strings.Compare(a.Path, b.Path) })
	it.Input = Object("changes", changes)
	switch it.Status {
	case Declined:
		it.Output = Rejected
	case Failed:
		it.Output = "The patch was not applied."
	default:
		var lines []string
		for _, c := range changes {
			lines = append(lines, strings.ToUpper(c.Kind[:1])+" "+c.Path)
		}
		it.Output = strings.Join(lines, "\n")
	}
}

func streamChanges(raw []byte) []change {
	var list []struct {
		Path string          `json:"path"`
		Diff string          `json:"diff"`
		Kind json.RawMessage `json:"kind"` // an object, or only its type
	}
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	out := make([]change, 0, len(list))
	for _, c := range list {
		kind := struct {
			Type string `json:"type"`
			Move string `json:"move_path"`
		}{Type: jsonscan.Text(c.Kind)}
		if kind.Type == "" && (!Lenient(c.Kind, &kind) || kind.Type == "") {
			continue
		}
		diff := c.Diff
		if kind.Move != "" {
			diff, _, _ = strings.Cut(diff, "\n\nMoved to: ")
		}
		out = append(out, change{Path: c.Path, Kind: kind.Type, Move: kind.Move, Diff: diff})
	}
	return out
}

func rolloutChanges(raw []byte) []change {
	var list map[string]struct {
		Type    string `json:"type"`
		Content string `json:"content"`
		Diff    string `json:"unified_diff"`
		Move    string `json:"move_path"`
	}
	out := []change{}
	if json.Unmarshal(raw, &list) != nil {
		return out
	}
	for path, c := range list {
		if c.Type != "" {
			out = append(out, change{Path: path, Kind: c.Type, Move: c.Move, Diff: First(c.Diff, c.Content)})
		}
	}
	return out
}

func (it *Item) call(w wire) {
	it.Name = w.tool
	switch {
	case it.Kind == kindMCP:
		it.Name = "mcp__" + w.server + "__" + w.tool
	case w.namespace != "":
		it.Name = w.namespace + "." + w.tool
	}
	it.Input = OrNull(jsonscan.Clone(w.arguments))
	result, failure := w.result, w.err
	// A rollout contains {"Ok": …} or {"Err": …} where the stream has one of two fields.
	if ok, err := jsonscan.Field(result, "Ok"), jsonscan.Field(result, "Err"); ok != nil || err != nil {
		result, failure = ok, err
	}
	content := jsonscan.Field(result, "content")
	it.Output = First(Texts(content), Texts(w.items))
	if it.Images = images(content); it.Images == nil {
		it.Images = images(w.items)
	}
	if s := First(jsonscan.Text(jsonscan.Field(failure, "message")), jsonscan.Text(failure)); s != "" {
		it.Output = s
	}
}

// collabNames maps the tools with which agents communicate to the names that models use.
var collabNames = map[string]string{
	"spawnAgent": spawnAgent, "sendInput": "send_input", "resumeAgent": "resume_agent", "wait": "wait_agent",
	"closeAgent": "close_agent", "sendMessage": "send_message", "followupTask": "followup_task",
	"interruptAgent": "interrupt_agent", "listAgents": "list_agents",
}

func (it *Item) collab(w wire) {
	tool := camel(w.tool)
	it.Name = collabNames[tool]
	if it.Name == "" {
		it.Name = tool
	}
	threads := w.receivers
	if it.Name == spawnAgent {
		it.Input = Object("prompt", w.prompt)
		if len(threads) > 0 {
			it.Child = threads[0]
		}
		return
	}
	if threads == nil {
		threads = []string{}
	}
	it.Input = Object("prompt", w.prompt, "threads", threads)
}

// Subagent reports whether the item starts a subagent.
func (it Item) Subagent() bool { return it.Name == spawnAgent }

// Outcome returns the status of the block of a call that has ended.
func (it Item) Outcome() conversation.BlockStatus {
	switch it.Status {
	case Failed, Declined:
		return conversation.Failed
	case Interrupted:
		return conversation.Aborted
	}
	return conversation.Success
}

// Texts returns the text in a list of parts, one line per part. Parts that are not text are
// described.
func Texts(raw []byte) string {
	var out []string
	jsonscan.Elements(raw, func(part []byte) {
		if s := jsonscan.Text(part); s != "" {
			out = append(out, s)
			return
		}
		var kind, words, name []byte
		jsonscan.Fields(part, func(key, value []byte) {
			switch string(key) {
			case "type":
				kind = value
			case "text":
				words = value
			case "name":
				name = value
			}
		})
		switch kind := strings.ToLower(jsonscan.Text(kind)); {
		case len(words) > 2:
			if text := jsonscan.Text(words); !stdio.IsReminder(text) {
				out = append(out, text)
			}
		case strings.Contains(kind, "image"):
			out = append(out, "[image]")
		case strings.Contains(kind, "audio"):
			out = append(out, "[audio]")
		case len(name) > 2:
			out = append(out, "["+jsonscan.Text(name)+"]")
		}
	})
	return strings.Join(out, "\n")
}

// images returns the images in a list of parts: from an MCP server in base64, from other tools as
// data URLs.
func images(raw []byte) []conversation.ImageData {
	var out []conversation.ImageData
	jsonscan.Elements(raw, func(part []byte) {
		var kind, data []byte
		jsonscan.Fields(part, func(key, value []byte) {
			switch string(key) {
			case "type":
				kind = value
			case "data", "imageUrl", "image_url":
				data = value
			}
		})
		if len(out) >= conversation.MaxBlockImages || !strings.Contains(strings.ToLower(jsonscan.Text(kind)), "image") {
			return
		}
		if i, ok := conversation.DecodeImage(jsonscan.Text(data)); ok {
			out = append(out, i)
		}
	})
	return out
}

// script returns the script that a command runs, without the shell that wraps it.
func script(raw []byte) string {
	argv := strs(raw)
	if argv == nil {
		words := jsonscan.Text(raw)
		if argv = split(words); argv == nil {
			return words
		}
	}
	if len(argv) == 3 && (argv[1] == "-lc" || argv[1] == "-c") {
		return argv[2]
	}
	return join(argv)
}

// split splits a command line at the quotes and blanks, as a shell does. It returns nil if a quote
// is not closed.
func split(s string) []string {
	var argv []string
	var word strings.Builder
	in, quote := false, byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote == '\'' && c != '\'', quote == '"' && c != '"' && c != '\\':
			word.WriteByte(c)
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\' && i+1 < len(s):
			i++
			if quote == '"' && !strings.ContainsRune("\"\\$`\n", rune(s[i])) {
				word.WriteByte('\\')
			}
			if s[i] != '\n' {
				word.WriteByte(s[i])
			}
			in = true
		case c == '\'' || c == '"':
			quote, in = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if in {
				argv = append(argv, word.String())
				word.Reset()
			}
			in = false
		default:
			word.WriteByte(c)
			in = true
		}
	}
	if quote != 0 {
		return nil
	}
	if in {
		argv = append(argv, word.String())
	}
	return argv
}

// join joins arguments to a command line and quotes those that a shell would split.
func join(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = a
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$`&|;<>()*?[]#~=%!{}") {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// filePath returns the path in s, which may be a file URL.
func filePath(s string) string {
	if !strings.HasPrefix(s, "file://") {
		return s
	}
	u, err := url.Parse(s)
	if err != nil {
		return s
	}
	return u.Path
}

// camel converts snake_case and PascalCase to the stream's camelCase.
func camel(s string) string {
	if s == "" {
		return ""
	}
	words := strings.Split(s, "_")
	for i, w := range words {
		if w == "" {
			continue
		}
		if i == 0 {
			words[i] = strings.ToLower(w[:1]) + w[1:]
		} else {
			words[i] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// Object returns a JSON object of keys and values, in the given order.
func Object(pairs ...any) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		for _, v := range []any{pairs[i], pairs[i+1]} {
			data, err := json.Marshal(v)
			if err != nil {
				data = []byte("null") // invalid JSON of the agent
			}
			b.Write(data)
			b.WriteByte(':')
		}
		b.Truncate(b.Len() - 1)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// First returns a, or b if a is empty.
func First(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// OrNull returns raw, or null if it is empty.
func OrNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}
