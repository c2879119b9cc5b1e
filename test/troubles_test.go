package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
)

// within bounds each step with an agent. The machine may be busy.
const within = 2 * time.Minute

// troubled has the parameters of the faults for an agent, in addition to agentUnderTest.
type troubled struct {
	agentUnderTest
	process   string // begins the command line of the agent's own process
	models    [2]string
	served    [2]string // the same, as requested from the model server
	arguments string    // the placeholder, in a command of a profile, for the text after the command's name
	ask       *modelserver.Call
	denied    string           // a tool that creates files
	write     modelserver.Call // of it
	hurry     map[string]string
	look      []modelserver.Call // shows the model tools that it does not get initially
	mark      string             // of the processes that its tools leave running
}

func troubledAgents() []troubled {
	claude, codex := modelserver.Ask("Which colour?", "Red", "Blue"), modelserver.AskUser("Which colour?", "Red", "Blue")
	opencode := modelserver.Call{Tool: "question", Input: object{"questions": []object{{
		"question": "Which colour?", "header": "Choice",
		"options": []object{{"label": "Red", "description": "It is red"}, {"label": "Blue", "description": "It is blue"}},
	}}}}
	hurried := map[string]string{"OVERWINTER_MODEL_TIMEOUT": "3s"}
	return []troubled{
		{
			agentUnderTest: agentsUnderTest[0], process: "/overwinter/agents/claude/claude ", mark: "86400",
			models: [2]string{"claude-haiku-4-5", "claude-sonnet-5"}, served: [2]string{"claude-haiku-4-5", "claude-sonnet-5"},
			arguments: "$ARGUMENTS", ask: &claude, denied: "Write",
			write: modelserver.Call{Tool: "Write", Input: object{"file_path": "/workspace/denied.txt", "content": "x"}},
			hurry: map[string]string{"CLAUDE_CODE_MAX_RETRIES": "1"},
		},
		{
			agentUnderTest: agentsUnderTest[1], process: "/overwinter/agents/codex/codex ", mark: "86401",
			models: [2]string{"gpt-6.1-sol", "gpt-6-sol"}, served: [2]string{"gpt-6.1-sol", "gpt-6-sol"},
			arguments: "$ARGUMENTS", ask: &codex, denied: "apply_patch", write: modelserver.Patch("denied.txt", "x"), hurry: hurried,
			look: []modelserver.Call{modelserver.Script("text(ALL_TOOLS.map(t => t.name).join(' '))")},
		},
		{
			agentUnderTest: agentsUnderTest[2], process: "/overwinter/agents/opencode/bin/opencode ", mark: "86402",
			models: [2]string{"anthropic/claude-haiku-4-5", "anthropic/claude-sonnet-4-5"}, served: [2]string{"claude-haiku-4-5", "claude-sonnet-4-5"},
			arguments: "$ARGUMENTS", ask: &opencode, denied: "write",
			write: modelserver.Call{Tool: "write", Input: object{"filePath": "denied.txt", "content": "x"}}, hurry: hurried,
		},
		{
			agentUnderTest: agentsUnderTest[3], process: "node /overwinter/agents/gemini/", mark: "86403",
			models: [2]string{"gemini-2.5-flash", "gemini-2.5-pro"}, served: [2]string{"gemini-2.5-flash", "gemini-2.5-pro"},
			arguments: "{{args}}", denied: "write_file", // over ACP the agent asks only for permission
			write: modelserver.Call{Tool: "write_file", Input: object{"file_path": "denied.txt", "content": "x"}},
			// The agent does not report failures, so its bridge cannot distinguish them from a slow
			// answer.
			hurry: map[string]string{"OVERWINTER_MODEL_TIMEOUT": "20s"},
		},
	}
}

// scripts are the answers of the agent's model.
func (a troubled) scripts() map[string][]modelserver.Step {
	// Some agents abort if a word is repeated.
	var story strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&story, "word%d ", i)
	}
	// Endless processes have a unique name by which they can be found.
	forever := func(file string) modelserver.Call {
		return a.run("touch " + file + "; tail -f /dev/null --sleep-interval=" + a.mark)
	}
	scripts := map[string][]modelserver.Step{
		"hello": {{Text: "Hello to you."}},
		"think": {{Thinking: "Should I say it? I think I should.", Text: "Yes."}},
		"file": {
			{Text: "I write it.", Calls: append(a.look, a.run("echo made by the agent > made.txt; echo marker is $TROUBLE_MARKER"))},
			{Text: "Written."},
		},
		"denied": {{Calls: []modelserver.Call{a.write}}, {Text: "So be it."}},
		"tool":   {{Text: "I wait.", Calls: []modelserver.Call{forever("begun.txt")}}, {Text: "It took long."}},
		"again":  {{Text: "I wait.", Calls: []modelserver.Call{forever("again.txt")}}, {Text: "It took long."}},
		"spawn":  {{Calls: []modelserver.Call{a.delegate("{{child}} look around")}}, {Text: "Delegated."}, {Text: "Done indeed."}},
		"child":  {{Calls: []modelserver.Call{forever("child.txt")}}, {Text: "I have looked."}},
		"long":   {{Text: story.String(), Pause: 20 * time.Millisecond}},
		"fails":  {{Status: http.StatusInternalServerError}},
		"recall": {{Text: "I know: ", Recall: true}},
		"forget": {{Calls: []modelserver.Call{a.run("rm -rf ~/.claude ~/.codex ~/.config ~/.local ~/.gemini")}}, {Text: "Gone."}},
	}
	if a.ask != nil {
		scripts["ask"] = []modelserver.Step{{Text: "A question.", Calls: []modelserver.Call{*a.ask}}, {Text: "Thank you."}}
	}
	return scripts
}

// echoServer is a server of the Model Context Protocol with one tool.
const echoServer = `while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
  *'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}}\n' "$id" ;;
  *'"tools/list"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"%s","description":"says it again","inputSchema":{"type":"object"}}]}}\n' "$id" "$ECHO_NAME" ;;
  *'"id"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{}}\n' "$id" ;;
  esac
done`

func (a troubled) profile() object {
	environment := object{"TROUBLE_MARKER": "marker-environment"}
	for name, value := range a.hurry {
		environment[name] = value
	}
	return object{
		"name": "trouble " + a.name, "instructions": "marker-instructions: be brief", "model": a.models[0],
		"skills":      []object{{"name": "skilled", "description": "marker-skill: use it", "content": "body of the skill"}},
		"subagents":   []object{{"name": "owl", "description": "marker-subagent: \"knows\" all", "content": "You are an owl."}},
		"commands":    []object{{"name": "greet", "description": "greets", "content": "{{hello}} marker-command " + a.arguments}},
		"mcpServers":  []object{{"name": "demo", "command": "sh", "args": []string{"-c", echoServer}, "environment": object{"ECHO_NAME": "markertool"}}},
		"files":       []object{{"path": "docs/note.txt", "content": "marker-file"}},
		"environment": environment, "permissions": object{"tools": object{a.denied: "deny"}},
	}
}

// trouble is a session of an agent under faults.
type trouble struct {
	*stack
	a      troubled
	id     string
	stream *follower
	server *modelserver.Server
}

// TestEveryAgentInTrouble gives each agent a profile, whose marks must reach its model, another
// model, a thought and a question. It aborts the agent in a tool and in a subagent, kills it in a
// tool and during its output, makes its model server fail permanently, reverts it, deletes its
// snapshot twice, and its home, and stops it in the middle of a turn. The agent always reports the
// outcome, leaves nothing open or running, and continues with its memory.
func TestEveryAgentInTrouble(t *testing.T) {
	t.Parallel()
	agents := troubledAgents()
	servers := map[string]*modelserver.Server{}
	for _, a := range agents {
		server := modelserver.New(a.scripts())
		t.Cleanup(server.Close)
		servers[a.name] = server
	}
	s := startStack(t)
	for _, a := range agents {
		secrets := a.secrets(servers[a.name])
		if a.name == "opencode" { // another agent uses the same provider, and its model does not think by default
			thinking := object{"options": object{"thinking": object{"type": "enabled", "budgetTokens": 2000}}}
			config, err := json.Marshal(object{"provider": object{"anthropic": object{
				"options": object{"baseURL": servers[a.name].URL() + "/v1"}, "models": object{"claude-sonnet-4-5": thinking},
			}}})
			require.NoError(t, err)
			secrets = map[string]string{"OPENCODE_CONFIG_CONTENT": string(config)}
		}
		for name, value := range secrets {
			s.must(t, http.StatusCreated, "PUT", "/api/secrets/"+name, object{"value": value})
		}
	}
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			inShortForm(t, a.name, "codex")
			t.Parallel()
			b := &trouble{stack: s, a: a, server: servers[a.name]}
			b.readsItsProfile(t)
			b.thinksWithAnotherModel(t)
			b.isAnswered(t)
			b.isBrokenOff(t)
			b.isKilled(t)
			b.failsAfterModelTimeout(t)
			b.isReverted(t)
			b.losesItsSnapshots(t)
			b.losesItsHome(t)
			b.isStopped(t)
			b.stream.all(t)
		})
	}
}

func (b *trouble) readsItsProfile(t *testing.T) {
	t.Helper()
	name := b.must(t, http.StatusCreated, "POST", "/api/profiles", b.a.profile())["name"]
	b.id = b.create(t, object{"agent": b.a.name, "profile": name, "prompt": object{"id": "first", "content": "/greet the narwhal"}})
	b.stream = b.follow(t, b.id)
	require.Equal(t, "completed", b.waitPrompt(t, b.id, "first", 4*time.Minute)["status"], "the image is made once")
	for _, marker := range []string{"marker-instructions", "marker-skill", "marker-subagent", "marker-command the narwhal"} {
		b.requireInRequests(t, marker)
	}
	require.Equal(t, b.a.served[0], b.newest(t).Model)

	b.turn(t, "file", "completed")
	text := b.text(t, b.id)
	require.Contains(t, text, "marker is marker-environment")
	b.requireInRequests(t, "markertool") // the tool of the profile's server
	b.turn(t, "denied", "completed")
	require.Equal(t, []string{"docs/note.txt", "made.txt"}, b.paths(t, b.id), "the denied tool has written")
	require.Equal(t, "marker-file", b.content(t, b.id, "docs/note.txt").body)
	diff := b.must(t, http.StatusOK, "GET", "/api/sessions/"+b.id+"/diff", nil)
	require.Contains(t, diff["patch"], "+made by the agent\n")
}

func (b *trouble) thinksWithAnotherModel(t *testing.T) {
	t.Helper()
	b.must(t, http.StatusOK, "PATCH", "/api/sessions/"+b.id, object{"options": object{"model": b.a.models[1]}})
	b.turn(t, "think", "completed")
	require.Equal(t, b.a.served[1], b.newest(t).Model)
	require.Contains(t, strings.Join(b.newest(t).Prompts, "\n"), "narwhal", "another process remembers")
	thought := b.last(t, "thinking")
	require.Equal(t, "complete", thought["status"])
	require.Contains(t, thought["content"], "Should I say it?")
}

func (b *trouble) isAnswered(t *testing.T) {
	t.Helper()
	if b.a.ask == nil {
		return
	}
	b.prompt(t, b.id, "ask", "{{ask}} me")
	question := b.asked(t, b.id)
	require.Equal(t, "question", question["kind"])
	require.Equal(t, "Which colour?", question["title"])
	b.answer(t, b.id, question, object{"answers": object{"Which colour?": "Blue"}})
	require.Equal(t, "completed", b.waitPrompt(t, b.id, "ask", within)["status"])
	require.Contains(t, fmt.Sprint(b.last(t, "tool_result")["output"]), "Blue")
}

func (b *trouble) isBrokenOff(t *testing.T) {
	t.Helper()
	b.prompt(t, b.id, "tool", "{{tool}} for it")
	b.works(t, "begun.txt")
	b.must(t, http.StatusAccepted, "POST", "/api/sessions/"+b.id+"/abort", nil)
	b.requireEnded(t, "tool", "cancelled", "aborted")
	require.Equal(t, "aborted", b.last(t, "tool_use")["status"])

	b.prompt(t, b.id, "spawn", "{{spawn}} one")
	b.works(t, "child.txt")
	b.must(t, http.StatusAccepted, "POST", "/api/sessions/"+b.id+"/abort", nil)
	b.requireEnded(t, "spawn", "cancelled", "aborted")
	require.Equal(t, "aborted", b.last(t, "subagent")["status"])
}

func (b *trouble) isKilled(t *testing.T) {
	t.Helper()
	b.prompt(t, b.id, "killed", "{{again}} for it")
	b.works(t, "again.txt")
	b.kill(t)
	b.requireEnded(t, "killed", "failed", "agent_crashed")
	require.Equal(t, "aborted", b.last(t, "tool_use")["status"])

	b.prompt(t, b.id, "long", "A {{long}} story")
	run := b.promptRun(t, b.id, "long")
	b.stream.wait(t, within, "the agent speaks", func(e event) bool { return e.RunID == run && e.Type == "text_delta" })
	b.kill(t)
	b.requireEnded(t, "long", "failed", "agent_crashed")
	text := b.last(t, "assistant_text")
	require.Equal(t, "aborted", text["status"])
	require.Contains(t, text["content"], "word0", "streamed text is not removed")
}

func (b *trouble) failsAfterModelTimeout(t *testing.T) {
	t.Helper()
	b.prompt(t, b.id, "fails", "It {{fails}} for ever")
	failed := b.waitPrompt(t, b.id, "fails", within)
	require.Equal(t, "failed", failed["status"])
	require.NotEmpty(t, failed["reason"])
	require.NotEqual(t, "agent_crashed", failed["reason"])
	require.Equal(t, "system", b.last(t, "")["type"], "people see why")
	b.remembers(t, "after-failures")
}

func (b *trouble) isReverted(t *testing.T) {
	t.Helper()
	if !b.can(t, "revert") {
		b.must(t, http.StatusConflict, "POST", "/api/sessions/"+b.id+"/revert", object{"promptId": "tool"})
		return
	}
	b.must(t, http.StatusAccepted, "POST", "/api/sessions/"+b.id+"/revert", object{"promptId": "tool"})
	eventually(t, within, "the agent is reverted", func() error {
		_, prompt, err := b.call("GET", "/api/sessions/"+b.id+"/prompts/tool", nil)
		if err == nil && prompt["reason"] != "reverted" {
			err = fmt.Errorf("%v", prompt)
		}
		return err
	})
	b.remembers(t, "after-revert")
	require.NotContains(t, strings.Join(b.newest(t).Prompts, "\n"), "{{tool}}")
}

// losesItsSnapshots hibernates the session in the middle of a tool and again, each time without a
// snapshot to wake from.
func (b *trouble) losesItsSnapshots(t *testing.T) {
	t.Helper()
	b.prompt(t, b.id, "forced", "{{tool}} once more")
	run := b.promptRun(t, b.id, "forced")
	b.stream.wait(t, within, "the tool runs", func(e event) bool {
		return e.RunID == run && (e.Type == "block_update" || e.Type == "block_complete") && strings.Contains(string(e.Data), "running")
	})
	b.must(t, http.StatusAccepted, "POST", "/api/sessions/"+b.id+"/hibernate", object{"force": true})
	require.Equal(t, "cancelled", b.waitPrompt(t, b.id, "forced", within)["status"])
	for _, prompt := range []string{"after-loss", "after-another-loss"} {
		b.waitStatus(t, b.id, "hibernated", within)
		require.Empty(t, b.open(t))
		b.loseSnapshots(t, b.id)
		b.remembers(t, prompt)
		b.requireInRequests(t, "This session continues in a new sandbox")
		woken := b.must(t, http.StatusOK, "GET", "/api/sessions/"+b.id, nil)
		require.Contains(t, []string{"partial", "fresh"}, woken["receipt"].(object)["kind"], "%v", woken["receipt"])
		b.must(t, http.StatusAccepted, "POST", "/api/sessions/"+b.id+"/hibernate", nil)
	}
	b.waitStatus(t, b.id, "hibernated", within)
}

// losesItsHome makes the agent delete its own files and end: the next process has its profile, but
// not its memory.
func (b *trouble) losesItsHome(t *testing.T) {
	t.Helper()
	b.turn(t, "forget", "completed")
	b.kill(t)
	b.prompt(t, b.id, "greeted", "/greet it again")
	require.Equal(t, "completed", b.waitPrompt(t, b.id, "greeted", within)["status"])
	require.Contains(t, strings.Join(b.newest(t).Prompts, "\n"), "marker-command it again", "its profile is not back")
}

func (b *trouble) isStopped(t *testing.T) {
	t.Helper()
	if b.a.ask != nil {
		b.prompt(t, b.id, "last", "{{ask}} a last time")
		b.asked(t, b.id)
	} else {
		b.prompt(t, b.id, "last", "{{long}} to the end")
		b.promptRun(t, b.id, "last")
	}
	b.must(t, http.StatusAccepted, "POST", "/api/sessions/"+b.id+"/stop", nil)
	b.requireEnded(t, "last", "cancelled", "session_terminated")
	b.waitStatus(t, b.id, "terminated", within)
	page := b.must(t, http.StatusOK, "GET", "/api/sessions/"+b.id+"/questions?status=open", nil)
	require.Empty(t, page["items"])
	eventually(t, within, "nothing of the sandbox is left", func() error {
		for pid, line := range b.sandboxTree() {
			if strings.HasPrefix(line, b.a.process) {
				return fmt.Errorf("%d %s", pid, line)
			}
		}
		return nil
	})
}

// turn makes the agent run a script in a prompt with the script's name.
func (b *trouble) turn(t *testing.T, script, status string) {
	t.Helper()
	b.prompt(t, b.id, script, "{{"+script+"}} please")
	got := b.waitPrompt(t, b.id, script, within)
	require.Equal(t, status, got["status"], "%v", got)
	require.Empty(t, b.open(t))
}

// requireEnded waits for the end of a prompt, after which no block is open and no process runs.
func (b *trouble) requireEnded(t *testing.T, prompt, status, reason string) {
	t.Helper()
	got := b.waitPrompt(t, b.id, prompt, within)
	require.Equal(t, status, got["status"], "%v", got)
	require.Equal(t, reason, got["reason"])
	require.Empty(t, b.open(t))
	eventually(t, within, "the tool's processes have ended", func() error {
		for pid, line := range b.processes() {
			if strings.HasPrefix(line, "tail ") && strings.Contains(line, b.a.mark) {
				return fmt.Errorf("%d %s", pid, line)
			}
		}
		return nil
	})
}

// works waits until a tool has created a file, which shows that the tool is running.
func (b *trouble) works(t *testing.T, file string) {
	t.Helper()
	b.stream.wait(t, within, "the tool is running", func(e event) bool {
		return e.Type == "file" && strings.Contains(string(e.Data), file)
	})
}

// kill kills the agent's own process, not the runner or a bridge, and returns when they have
// detected that.
func (b *trouble) kill(t *testing.T) {
	t.Helper()
	killed := 0
	for pid, line := range b.sandboxTree() {
		if strings.HasPrefix(line, b.a.process) {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			killed++
		}
	}
	require.Positive(t, killed, "there is no process of the agent's")
	eventually(t, within, "the agent has ended", func() error {
		for pid, line := range b.sandboxTree() {
			bridge := strings.Contains(line, "-bridge ") && strings.Contains(line, b.id)
			if bridge || strings.HasPrefix(line, b.a.process) {
				return fmt.Errorf("%d %s", pid, line)
			}
		}
		return nil
	})
}

// remembers asks the agent for the first prompt.
func (b *trouble) remembers(t *testing.T, prompt string) {
	t.Helper()
	b.prompt(t, b.id, prompt, "What was it? {{recall}}")
	got := b.waitPrompt(t, b.id, prompt, within)
	require.Equal(t, "completed", got["status"], "%v", got)
	require.Contains(t, b.newest(t).Prompts[0], "narwhal")
}

// requireInRequests requires that the newest requests contain a marker. The requests are too long to be printed.
func (b *trouble) requireInRequests(t *testing.T, marker string) {
	t.Helper()
	if !strings.Contains(b.server.Sent(), marker) {
		require.Failf(t, "the model does not get it", "of %s", marker)
	}
}

// newest returns the last model request of the agent.
func (b *trouble) newest(t *testing.T) modelserver.Request {
	t.Helper()
	requests := b.server.Requests()
	require.NotEmpty(t, requests)
	return requests[len(requests)-1]
}

// can reports whether the agent declares a capability.
func (b *trouble) can(t *testing.T, what string) bool {
	t.Helper()
	for _, raw := range b.must(t, http.StatusOK, "GET", "/api/agents", nil)["items"].([]any) {
		if raw.(object)["name"] == b.a.name {
			return strings.Contains(fmt.Sprint(raw.(object)["capabilities"]), what)
		}
	}
	return false
}

// blocks returns the blocks of all conversations of the session, those of the main one first.
func (b *trouble) blocks(t *testing.T) (all [][]object) {
	t.Helper()
	for _, c := range b.conversations(t, b.id) {
		all = append(all, c.blocks)
	}
	return all
}

// last returns the newest block of a type in the main conversation, or of any type.
func (b *trouble) last(t *testing.T, kind string) object {
	t.Helper()
	main := b.blocks(t)[0]
	for i := len(main) - 1; i >= 0; i-- {
		if kind == "" || main[i]["type"] == kind {
			return main[i]
		}
	}
	require.Fail(t, "there is no block", "of type %s in %v", kind, main)
	return nil
}

// open returns the blocks that have not ended.
func (b *trouble) open(t *testing.T) []object {
	t.Helper()
	var open []object
	for _, conversation := range b.blocks(t) {
		for _, block := range conversation {
			switch block["status"] {
			case "pending", "running", "streaming":
				open = append(open, block)
			}
		}
	}
	return open
}
