package codex

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
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// The kinds of item that are told apart, as the stream names them.
const (
	kindUser       = "userMessage"
	kindText       = "agentMessage"
	kindPlan       = "plan"
	kindThinking   = "reasoning"
	kindCommand    = "commandExecution"
	kindFiles      = "fileChange"
	kindMCP        = "mcpToolCall"
	kindDynamic    = "dynamicToolCall"
	kindCollab     = "collabAgentToolCall"
	kindExecCollab = "collabToolCall" // the same in the stream of codex exec
	kindSubagent   = "subAgentActivity"
	kindSearch     = "webSearch"
	kindImage      = "imageView"
	kindGenerate   = "imageGeneration"
	kindSleep      = "sleep"
	kindCompaction = "contextCompaction"
	kindAsk        = "requestUserInput" // ours: a question to the user has no item
)

// The states of an item.
const (
	inProgress  = "inProgress"
	completed   = "completed"
	failed      = "failed"
	declined    = "declined"
	interrupted = "interrupted"
)

// rejected is the result of a call that was not allowed. The agent's transcript has it in one form,
// its stream in none.
const rejected = "rejected by user"

// item is a piece of a turn, as stream and transcript have it in common.
type item struct {
	kind   string
	id     string
	status string
	// Milliseconds of Unix time; 0 is unknown.
	started, completed int64

	client string // of a user's message: its clientID
	text   string // of messages and thinking

	name   string // of tools
	input  json.RawMessage
	output string
	// child is the thread of a subagent that has been started.
	child string
}

// wire is an item as the stream writes it, in camel case, or a rollout, in snake case. Raw values are
// inside the line.
type wire struct {
	kind, id, status   string
	started, completed int64
	client, text       string
	content, raw       []byte
	summary            []string

	command     []byte
	cwd, output string
	exit        string // the number

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
		w.started = number(value)
	case "completedAtMs":
		w.completed = number(value)
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

// strs are the strings in a list.
func strs(raw []byte) []string {
	var out []string
	jsonscan.Elements(raw, func(value []byte) {
		if len(value) > 0 && value[0] == '"' {
			out = append(out, jsonscan.Text(value))
		}
	})
	return out
}

// number is a whole number, or 0.
func number(raw []byte) int64 {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// lenient decodes JSON and bears fields that are not of the type that is wanted.
func lenient(data []byte, v any) bool {
	err := json.Unmarshal(data, v)
	var wrong *json.UnmarshalTypeError
	return err == nil || (errors.As(err, &wrong) && wrong.Field != "")
}

// decodeItem reads an item; false means that it is none, or of no use.
func decodeItem(raw []byte) (item, bool) {
	var w wire
	if !jsonscan.Fields(raw, w.set) || w.id == "" || w.kind == "" {
		return item{}, false
	}
	it := item{
		kind: camel(w.kind), id: w.id, status: camel(w.status), started: w.started, completed: w.completed, text: w.text,
	}
	if it.kind == kindExecCollab {
		it.kind = kindCollab
	}
	switch it.kind {
	case kindUser:
		it.client, it.text = w.client, texts(w.content)
	case kindText, kindPlan:
		if it.text == "" {
			it.text = texts(w.content)
		}
	case kindThinking:
		it.text = first(strings.Join(w.summary, paragraph), w.text)
		if it.text == "" {
			it.text = first(texts(w.content), texts(w.raw))
		}
	case kindCommand:
		it.command(w)
	case kindFiles:
		it.files(w)
	case kindMCP, kindDynamic:
		it.call(w)
	case kindCollab:
		it.collab(w)
	case kindSubagent:
		it.name = spawnAgent
		it.child = w.thread
		it.input = object("path", w.agentPath)
		it.status = camel(w.action)
	case kindSearch:
		it.name, it.input = "web_search", object("query", w.query)
	case kindImage:
		it.name, it.input = "view_image", object("path", filePath(w.file))
	case kindGenerate:
		it.name, it.input = "image_generation", object("prompt", w.revised)
	case kindSleep:
		it.name, it.input = "sleep", object("durationMs", orNull(w.duration))
	case kindCompaction:
	default:
		return item{}, false
	}
	return it, true
}

// spawnAgent is the tool that starts a subagent.
const spawnAgent = "spawn_agent"

// paragraph separates the parts of a summary.
const paragraph = "\n\n"

func (it *item) command(w wire) {
	it.name = "exec_command"
	it.input = object("command", script(w.command), "cwd", filePath(w.cwd))
	it.output = persisted(w.output)
	switch exit, err := strconv.Atoi(w.exit); {
	case it.status == declined:
		it.output = rejected
	case err == nil && exit != 0:
		it.output = exited(exit, it.output)
	}
}

// exited is the output of a command that has failed.
func exited(code int, output string) string {
	return "Process exited with code " + strconv.Itoa(code) + "\nOutput:\n" + output
}

// persisted is the output of a command as a rollout has it: of a long one the middle is left out.
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

// change is what a patch does to a file.
type change struct {
	Path string `json:"path"`
	Kind string `json:"kind"` // add, update or delete
	Move string `json:"movePath,omitempty"`
	Diff string `json:"diff,omitempty"` // of what is added or deleted: the text
}

func (it *item) files(w wire) {
	it.name = "apply_patch"
	changes := streamChanges(w.changes)
	if changes == nil {
		changes = rolloutChanges(w.changes)
	}
	slices.SortFunc(changes, func(a, b change) int { return strings.Compare(a.Path, b.Path) })
	it.input = object("changes", changes)
	switch it.status {
	case declined:
		it.output = rejected
	case failed:
		it.output = "The patch was not applied."
	default:
		var lines []string
		for _, c := range changes {
			lines = append(lines, strings.ToUpper(c.Kind[:1])+" "+c.Path)
		}
		it.output = strings.Join(lines, "\n")
	}
}

func streamChanges(raw []byte) []change {
	var list []struct {
		Path string          `json:"path"`
		Diff string          `json:"diff"`
		Kind json.RawMessage `json:"kind"` // an object, or its type alone
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
		if kind.Type == "" && (!lenient(c.Kind, &kind) || kind.Type == "") {
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
			out = append(out, change{Path: path, Kind: c.Type, Move: c.Move, Diff: first(c.Diff, c.Content)})
		}
	}
	return out
}

func (it *item) call(w wire) {
	it.name = w.tool
	switch {
	case it.kind == kindMCP:
		it.name = "mcp__" + w.server + "__" + w.tool
	case w.namespace != "":
		it.name = w.namespace + "." + w.tool
	}
	it.input = orNull(jsonscan.Clone(w.arguments))
	result, failure := w.result, w.err
	// A rollout says {"Ok": …} or {"Err": …} where the stream has one of two fields.
	if ok, err := jsonscan.Field(result, "Ok"), jsonscan.Field(result, "Err"); ok != nil || err != nil {
		result, failure = ok, err
	}
	it.output = first(texts(jsonscan.Field(result, "content")), texts(w.items))
	if s := first(jsonscan.Text(jsonscan.Field(failure, "message")), jsonscan.Text(failure)); s != "" {
		it.output = s
	}
}

// collabNames are the tools of agents among themselves, as models know them.
var collabNames = map[string]string{
	"spawnAgent": spawnAgent, "sendInput": "send_input", "resumeAgent": "resume_agent", "wait": "wait_agent",
	"closeAgent": "close_agent", "sendMessage": "send_message", "followupTask": "followup_task",
	"interruptAgent": "interrupt_agent", "listAgents": "list_agents",
}

func (it *item) collab(w wire) {
	tool := camel(w.tool)
	it.name = collabNames[tool]
	if it.name == "" {
		it.name = tool
	}
	threads := w.receivers
	if it.name == spawnAgent {
		it.input = object("prompt", w.prompt)
		if len(threads) > 0 {
			it.child = threads[0]
		}
		return
	}
	if threads == nil {
		threads = []string{}
	}
	it.input = object("prompt", w.prompt, "threads", threads)
}

// subagent reports whether the item starts a subagent.
func (it item) subagent() bool { return it.name == spawnAgent }

// outcome is the state of the block of a call that has ended.
func (it item) outcome() conversation.BlockStatus {
	switch it.status {
	case failed, declined:
		return conversation.Failed
	case interrupted:
		return conversation.Aborted
	}
	return conversation.Success
}

// texts are the words in a list of parts, a line for each; what is no text is described.
func texts(raw []byte) string {
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
			out = append(out, jsonscan.Text(words))
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

// script is what a command runs, without the shell around it.
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

// split takes apart what a shell would, as far as quotes go; nil means that the quotes are not even.
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

// join quotes what a shell would take apart.
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

// filePath is a path that may be given as a URL.
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

// camel writes snake_case and PascalCase as the stream does.
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

// object is a JSON object of keys and values, in their order.
func object(pairs ...any) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		for _, v := range []any{pairs[i], pairs[i+1]} {
			data, err := json.Marshal(v)
			if err != nil {
				data = []byte("null") // JSON of the agent that is none
			}
			b.Write(data)
			b.WriteByte(':')
		}
		b.Truncate(b.Len() - 1)
	}
	b.WriteByte('}')
	return b.Bytes()
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}
