package codex_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/program"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/scripted"
	"github.com/overwinter-dev/overwinter/internal/agent/codex"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// old is a model that the program does not know, so it is offered subagents and the tools of MCP
// servers from the start.
const old = "some-model"

// cli is the real Codex with its bridge and its own model server.
type cli struct {
	*program.Process
	server *modelserver.Server
	in     agent.LaunchInput
	launch agent.Launch
	events []conversation.Event
	images []agent.Image // sent with the prompts
	hasty  bool          // abort each prompt as soon as it is written
	run    string        // the newest
}

func start(t *testing.T, in agent.LaunchInput, scripts map[string][]modelserver.Step, flags ...string) *cli {
	t.Helper()
	p := &cli{server: modelserver.New(scripts), in: in}
	t.Cleanup(p.server.Close)
	p.in.SessionID, p.in.Home, p.in.Workspace = session.NewID(session.SessionPrefix), t.TempDir(), t.TempDir()
	program.WriteProfile(t, codex.New(), p.in)
	p.begin(t, flags...)
	return p
}

// begin starts the bridge's process.
func (p *cli) begin(t *testing.T, flags ...string) {
	t.Helper()
	launch, err := codex.New().Launch(p.in)
	require.NoError(t, err)
	p.launch = launch
	p.Process = program.Start(t, command(t, p.server.URL(), launch, flags...), launch)
}

// turn runs a prompt to its end and answers the agent's questions meanwhile. It passes each event
// to saw.
func (p *cli) turn(t *testing.T, content string, saw func(conversation.Event), answers ...agent.Answer) program.Turn {
	t.Helper()
	in := agent.PromptInput{RunID: session.NewID(session.RunPrefix), PromptID: "prm_1", Author: "ada", Content: content, Images: p.images}
	p.run = in.RunID
	line, err := codex.New().Prompt(in)
	require.NoError(t, err)
	if p.hasty {
		line = append(line, codex.New().Interrupt(in.RunID).Stdin...)
	}
	p.Write(t, line)
	out := p.Read(t, codex.New(), agent.RunContext{RunID: in.RunID, PromptID: in.PromptID, Author: in.Author}, func(e conversation.Event) bool {
		if saw != nil {
			saw(e)
		}
		return false
	}, answers...)
	p.events = append(p.events, out.Events...)
	return out
}

// agree ends the program and compares its transcript with its stream.
func (p *cli) agree(t *testing.T) {
	t.Helper()
	p.Close(t)
	parsed, err := codex.New().Parse(p.saved(t))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(capture.Lines(parsed), capture.Lines(agenttest.Fold(t, p.events))), "- parsed, + streamed")
}

var asking = permission.Rules{Default: permission.Ask}

func TestAnswerAppliesForItsScope(t *testing.T) {
	t.Parallel()
	p := start(t, agent.LaunchInput{Permissions: asking, Model: plain}, map[string][]modelserver.Step{
		"touch": {{Calls: []modelserver.Call{modelserver.Exec("touch permitted && echo touched")}}, {Text: "So be it."}},
	})
	no := p.turn(t, "{{touch}} it", nil, agent.Answer{Decision: agent.DecisionReject, Message: "not now"})
	require.NoFileExists(t, filepath.Join(p.in.Workspace, "permitted"))
	require.Equal(t, "exec_command", no.Questions[0].ToolName)
	require.Contains(t, no.Questions[0].Title, "touch permitted && echo touched")
	require.JSONEq(t, fmt.Sprintf(`{"command":"touch permitted && echo touched","cwd":%q}`, p.in.Workspace), string(no.Questions[0].Input))
	said := no.All(conversation.UserMessage)
	require.Equal(t, "not now", said[len(said)-1].Content, "the agent gets the reason of the rejection")

	p.turn(t, "{{touch}} it", nil, agent.Answer{Decision: agent.DecisionSession})
	require.FileExists(t, filepath.Join(p.in.Workspace, "permitted"))
	p.turn(t, "{{touch}} it", nil) // allowed now without asking
	p.agree(t)
}

func TestDeniedToolIsRemoved(t *testing.T) {
	t.Parallel()
	p := start(t, agent.LaunchInput{
		Model: plain, Permissions: permission.Rules{Tools: map[string]permission.Policy{"exec_command": permission.Deny, "web_search": permission.Deny}},
	}, map[string][]modelserver.Step{"hello": {{Text: "Hello."}}})
	p.turn(t, "{{hello}}", nil)
	tools := p.server.Requests()[0].Tools
	require.Contains(t, tools, "apply_patch")
	require.NotContains(t, tools, "exec_command")
	require.NotContains(t, tools, "web_search")
	p.agree(t)
}

func TestToolsDoNotGetKey(t *testing.T) {
	t.Parallel()
	p := start(t, agent.LaunchInput{Model: plain}, map[string][]modelserver.Step{
		"look": {{Calls: []modelserver.Call{modelserver.Exec("echo key=$OPENAI_API_KEY. home=$HOME")}}, {Text: "So."}},
	})
	r := p.turn(t, "{{look}}", nil)
	require.JSONEq(t, fmt.Sprintf("%q", "key=. home="+p.in.Home+"\n"), string(r.All(conversation.ToolResult)[0].Output))
	require.Equal(t, "sk-none", p.server.Requests()[0].Key)
	p.agree(t)
	require.NoError(t, filepath.WalkDir(p.in.Home, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(name)
		require.NotContains(t, string(data), "sk-none", name)
		return err
	}))
}

func TestCallsFromJavaScriptAreShown(t *testing.T) {
	t.Parallel()
	p := start(t, agent.LaunchInput{}, map[string][]modelserver.Step{
		"look": {{Calls: []modelserver.Call{modelserver.Exec("echo here")}}, {Text: "So."}},
	})
	r := p.turn(t, "{{look}}", nil)
	require.Equal(t, newest, p.server.Requests()[0].Model, "the agent's own choice")
	use := r.All(conversation.ToolUse)[0]
	require.Equal(t, "exec_command", use.Name)
	require.JSONEq(t, fmt.Sprintf(`{"command":"echo here","cwd":%q}`, p.in.Workspace), string(use.Input))
	require.JSONEq(t, `"here\n"`, string(r.All(conversation.ToolResult)[0].Output))
	p.agree(t)
}

func TestSubagentOfOldModelIsConversation(t *testing.T) {
	t.Parallel()
	spawn := modelserver.Call{Tool: "spawn_agent", Input: map[string]any{"message": "{{child}} look around"}}
	p := start(t, agent.LaunchInput{Model: old}, map[string][]modelserver.Step{
		"delegate": {{Text: "A subagent shall do it.", Calls: []modelserver.Call{spawn}}, {Text: "It is at work."}},
		"child":    {{Text: "I look.", Calls: []modelserver.Call{modelserver.Exec("sleep 0.5; echo here")}}, {Text: "I have looked."}},
	})
	r := p.turn(t, "{{delegate}}", nil)
	require.Equal(t, session.OutcomeCompleted, r.End.Outcome)
	require.EqualValues(t, 2, r.End.Usage.ToolCalls)
	require.EqualValues(t, 4*42, r.End.Usage.OutputTokens, "those of the subagent count")
	sub := r.All(conversation.Subagent)[0]
	require.Equal(t, conversation.Success, sub.Status)
	c := agenttest.Fold(t, r.Events)
	require.Equal(t, sub.SubagentID, c.Threads[1].ID)
	last := c.Threads[1].Blocks[len(c.Threads[1].Blocks)-1]
	require.Equal(t, "I have looked.", last.Content, "the turn waits for the subagent")
	p.agree(t)
}

func TestInterruptReachesSubagents(t *testing.T) {
	t.Parallel()
	p := start(t, agent.LaunchInput{Model: newest}, map[string][]modelserver.Step{
		"delegate": {{Calls: []modelserver.Call{modelserver.Spawn("helper", "{{child}}")}}, {Calls: []modelserver.Call{modelserver.AwaitAgents()}}, {Text: "Done."}},
		"child":    {{Text: strings.Repeat("word ", 5000), Pause: 20 * time.Millisecond}},
	})
	done := false
	r := p.turn(t, "{{delegate}}", func(e conversation.Event) {
		if e.Type == conversation.EventTextDelta && e.ConversationID != conversation.Main && !done {
			done = true
			p.Write(t, codex.New().Interrupt("").Stdin)
		}
	})
	require.Equal(t, session.OutcomeCancelled, r.End.Outcome)
	require.Equal(t, conversation.Aborted, r.All(conversation.Subagent)[0].Status)
	p.agree(t)
}

// TestInterruptReachesBackgroundSubagent interrupts a run whose main turn has no more
// output, but which has not ended.
func TestInterruptReachesBackgroundSubagent(t *testing.T) {
	t.Parallel()
	p := start(t, agent.LaunchInput{Model: newest}, map[string][]modelserver.Step{
		"delegate": {{Calls: []modelserver.Call{modelserver.Spawn("helper", "{{child}}")}}, {Text: "It is at work."}},
		"child":    {{Text: strings.Repeat("word ", 5000), Pause: 20 * time.Millisecond}},
		"hello":    {{Text: "Hello."}},
	})
	said, words := false, 0
	r := p.turn(t, "{{delegate}}", func(e conversation.Event) {
		said = said || e.Type == conversation.EventBlockComplete && strings.Contains(fmt.Sprint(e.Data), "It is at work.")
		if !said || e.Type != conversation.EventTextDelta || e.ConversationID == conversation.Main {
			return
		}
		if words++; words == 20 { // the main turn has ended, or is about to
			p.Write(t, codex.New().Interrupt(p.run).Stdin)
		}
	})
	require.Equal(t, session.OutcomeCancelled, r.End.Outcome)
	require.Equal(t, session.ReasonAborted, r.End.Reason)
	require.Equal(t, conversation.Aborted, r.All(conversation.Subagent)[0].Status)
	require.Equal(t, session.OutcomeCompleted, p.turn(t, "{{hello}}", nil).End.Outcome)
	p.agree(t)
}

func TestInterruptMayComeAtOnce(t *testing.T) {
	t.Parallel()
	p := start(t, agent.LaunchInput{Model: plain}, map[string][]modelserver.Step{
		"long": {{Text: strings.Repeat("word ", 5000), Pause: 20 * time.Millisecond}}, "hello": {{Text: "Hello."}},
	})
	p.hasty = true
	require.Equal(t, session.OutcomeCancelled, p.turn(t, "{{long}}", nil).End.Outcome)
	require.Equal(t, session.OutcomeCancelled, p.turn(t, "{{long}}", nil).End.Outcome)
	p.hasty = false
	require.Equal(t, session.OutcomeCompleted, p.turn(t, "{{hello}}", nil).End.Outcome)
	p.agree(t)
}

func TestBackgroundProcessesAreNotAwaited(t *testing.T) {
	t.Parallel()
	run := modelserver.Call{Tool: "exec_command", Input: map[string]any{"cmd": "while [ ! -e stop ]; do sleep 0.05; done; echo stopped > done", "yield_time_ms": 250}}
	p := start(t, agent.LaunchInput{Model: plain}, map[string][]modelserver.Step{
		"serve": {{Calls: []modelserver.Call{run}}, {Text: "It runs."}},
		"hello": {{Text: "Hello."}},
	})
	r := p.turn(t, "{{serve}}", nil)
	require.Equal(t, session.OutcomeCompleted, r.End.Outcome)
	require.Equal(t, conversation.Success, r.All(conversation.ToolUse)[0].Status)
	require.NoError(t, os.WriteFile(filepath.Join(p.in.Workspace, "stop"), nil, 0o600))
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(p.in.Workspace, "done"))
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	p.turn(t, "{{hello}}", nil)
	p.agree(t)
}

func TestUnresponsiveModelFailsTurn(t *testing.T) {
	t.Parallel()
	p := start(t, agent.LaunchInput{Model: plain}, map[string][]modelserver.Step{
		"endless": {{Status: 503}}, "hello": {{Text: "Hello."}},
	}, "--model-timeout", "1s", "--retries", "50")
	r := p.turn(t, "{{endless}}", nil)
	require.Equal(t, session.OutcomeFailed, r.End.Outcome)
	require.Equal(t, "The model API has failed for 1s.", r.End.Reason)
	require.Equal(t, session.OutcomeCompleted, p.turn(t, "{{hello}}", nil).End.Outcome)
	p.agree(t)
}

func TestRefusedKeyFailsTurnQuickly(t *testing.T) {
	t.Parallel()
	p := start(t, agent.LaunchInput{Model: plain}, map[string][]modelserver.Step{
		"refused": {{Status: 401}}, "endless": {{Status: 503}},
	}, "--model-timeout", "5s", "--retries", "50")
	r := p.turn(t, "{{refused}}", nil)
	require.Equal(t, session.OutcomeFailed, r.End.Outcome)
	require.Contains(t, r.End.Reason, "refused the key")
	require.Contains(t, r.End.Reason, "scripted error 401")
	r = p.turn(t, "{{endless}}", nil)
	require.Equal(t, "The model API has failed for 5s.", r.End.Reason)
	p.agree(t)
}

// asServer names the environment variable that makes this test binary act as an MCP server with one
// tool.
const asServer = "OVERWINTER_TEST_AS_MCP_SERVER"

// serveTool answers requests of an MCP client until stdin is closed.
func serveTool(stdin io.Reader, stdout io.Writer) {
	in := bufio.NewScanner(stdin)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.Unmarshal(in.Bytes(), &m) != nil || len(m.ID) == 0 {
			continue
		}
		result := map[string]any{}
		switch m.Method {
		case "initialize":
			result = map[string]any{
				"protocolVersion": "2025-06-18", "capabilities": map[string]any{"tools": map[string]any{}},
				"serverInfo": map[string]any{"name": "mirror", "version": "1"},
			}
		case "tools/list":
			result = map[string]any{"tools": []any{map[string]any{
				"name": "reflect", "description": "Say " + os.Getenv("MARK"), "inputSchema": map[string]any{"type": "object"},
			}}}
		case "tools/call":
			result = map[string]any{"content": []any{map[string]any{"type": "text", "text": "reflected " + os.Getenv("MARK")}}}
		}
		b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
		if err != nil {
			return
		}
		fmt.Fprintf(stdout, "%s\n", b)
	}
}

func TestProfileIsApplied(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	p := start(t, agent.LaunchInput{Permissions: asking, Profile: &profile.Spec{
		Instructions: "Mark of the instructions: MI-1.",
		Skills:       []profile.Text{{Name: "greeter", Description: "Mark of the \"skill\": MS-2.", Content: "Greet."}},
		Subagents:    []profile.Text{{Name: "reviewer", Description: "Mark of the subagent: MA-3.", Content: "Review.\nWell."}},
		Commands:     []profile.Text{{Name: "greet", Content: "{{reflect}} Mark of the command: MC-4, $ARGUMENTS."}},
		MCPServers: []profile.MCPServer{{
			Name: "mirror", Command: self, Args: []string{"-test.run", "none"}, Environment: map[string]string{asServer: "1", "MARK": "MM-5"},
		}},
		Model:       old,
		Environment: map[string]string{"OVERWINTER_TEST_MARK": "ME-6"},
	}}, map[string][]modelserver.Step{
		"reflect": {
			{Calls: []modelserver.Call{{Tool: "reflect", Input: map[string]any{}}}},
			{Calls: []modelserver.Call{modelserver.Exec("echo $OVERWINTER_TEST_MARK")}},
			{Text: "Done."},
		},
	})
	yes := agent.Answer{Decision: agent.DecisionOnce}
	r := p.turn(t, "/greet to you", nil, yes, yes)
	require.Equal(t, session.OutcomeCompleted, r.End.Outcome, r.End.Reason)
	request := p.server.Requests()[0]
	require.Contains(t, request.System, "MI-1")
	require.Contains(t, request.System, "MS-2")
	require.Equal(t, old, request.Model)
	require.Contains(t, request.Prompts[0], "Mark of the command: MC-4, to you.")
	require.Contains(t, request.Tools, "reflect")
	require.Contains(t, request.Offered, "MA-3", "the tool that starts subagents names them")
	require.Equal(t, "mcp__mirror__reflect", r.Questions[0].ToolName)
	uses := r.All(conversation.ToolUse)
	require.Equal(t, "mcp__mirror__reflect", uses[0].Name)
	require.Equal(t, uses[0].ID, r.Questions[0].ToolUseID)
	results := r.All(conversation.ToolResult)
	require.JSONEq(t, `"reflected MM-5"`, string(results[0].Output))
	require.JSONEq(t, `"ME-6\n"`, string(results[1].Output))
	p.agree(t)
}

func TestInterruptedTurnIsContinued(t *testing.T) {
	t.Parallel()
	p := start(t, agent.LaunchInput{Model: plain}, map[string][]modelserver.Step{
		"long":  {{Text: "First.", Calls: []modelserver.Call{modelserver.Exec(scripted.UntilKilled)}}, {Text: "That was cut short."}},
		"hello": {{Text: "Hello."}},
	})
	run := agent.RunContext{RunID: session.NewID(session.RunPrefix), PromptID: "prm_1", Author: "ada"}
	line, err := codex.New().Prompt(agent.PromptInput{RunID: run.RunID, PromptID: run.PromptID, Author: run.Author, Content: "{{long}}"})
	require.NoError(t, err)
	p.Write(t, line)
	for data := range p.Rest() {
		if strings.Contains(string(data), `"item/started"`) && strings.Contains(string(data), "commandExecution") {
			break
		}
	}
	require.NoError(t, p.Cmd.Process.Kill())
	p.Wait(t)
	p.in.Resume = true
	p.begin(t)
	p.Write(t, line)
	tr, err := codex.New().NewTranslator(run, nil)
	require.NoError(t, err)
	var end *agent.TurnEnd
	said := ""
	for data := range p.Rest() {
		got, err := tr.Translate(agent.Frame{Stream: agent.Stdout, At: time.Now(), Data: data})
		require.NoError(t, err)
		for _, e := range got.Events {
			if d, ok := e.Data.(conversation.BlockComplete); ok {
				said += d.Block.Content
			}
		}
		if end = got.End; end != nil {
			break
		}
	}
	require.Equal(t, session.OutcomeCompleted, end.Outcome)
	require.Equal(t, "That was cut short.", said)
	requests := p.server.Requests()
	last := requests[len(requests)-1]
	require.Len(t, last.Prompts, 1, "the prompt is there once")
	p.Close(t)
}

func TestImagesOfPromptReachModel(t *testing.T) {
	t.Parallel()
	p := start(t, agent.LaunchInput{Model: plain}, map[string][]modelserver.Step{"see": {{Text: "A dot."}}, "more": {{Text: "The same."}}})
	images := program.Pictures(t, p.in.Workspace)
	p.images = images
	got := p.turn(t, "{{see}} it", nil)
	require.Equal(t, session.OutcomeCompleted, got.End.Outcome, got.End.Reason)
	program.RequireSent(t, p.server.Sent(), images)
	p.images = nil
	p.turn(t, "{{more}} of it", nil)
	p.agree(t)
}
