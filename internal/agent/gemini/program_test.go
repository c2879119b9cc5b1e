package gemini_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/program"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// cli is the real Gemini CLI with its bridge and its own model server.
type cli struct {
	*program.Process
	server *modelserver.Server
	input  agent.LaunchInput
	folder conversation.Folder
}

// start starts the program as described by in. It creates home and workspace if they are not given.
func start(t *testing.T, scripts map[string][]modelserver.Step, in agent.LaunchInput) *cli {
	t.Helper()
	p := &cli{server: modelserver.New(scripts), input: in}
	t.Cleanup(p.server.Close)
	p.input.SessionID, p.input.Home, p.input.Workspace = session.NewID(session.SessionPrefix), t.TempDir(), t.TempDir()
	p.begin(t)
	return p
}

// begin starts the program's process, with its profile written as into a sandbox.
func (p *cli) begin(t *testing.T) {
	t.Helper()
	program.WriteProfile(t, gemini.New(), p.input)
	launch, err := gemini.New().Launch(p.input)
	require.NoError(t, err)
	p.Process = program.Start(t, command(t, p.server.URL(), launch), launch)
}

// turn runs a prompt to its end and answers the agent's questions meanwhile.
func (p *cli) turn(t *testing.T, content string, answers ...agent.Answer) program.Turn {
	t.Helper()
	in := agent.PromptInput{RunID: session.NewID(session.RunPrefix), PromptID: session.NewID(session.PromptPrefix), Content: content}
	return p.Prompt(t, gemini.New(), in, p.saw, answers...)
}

func (p *cli) saw(e conversation.Event) bool {
	p.folder.Add(e)
	return false
}

// requireSame compares the streamed blocks with the transcript.
func (p *cli) requireSame(t *testing.T) {
	t.Helper()
	launch, err := gemini.New().Launch(p.input)
	require.NoError(t, err)
	data, err := os.ReadFile(launch.Transcripts[0])
	require.NoError(t, err)
	parsed, err := gemini.New().Parse([]transcript.File{{Path: launch.Transcripts[0], Data: data}})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(capture.Lines(parsed), capture.Lines(p.folder.Conversation())), "- parsed, + streamed")
}

// TestProfileReachesModel looks for each part of a profile in the requests that the model
// received.
func TestProfileReachesModel(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	p := start(t, map[string][]modelserver.Step{
		"env":    {{Calls: []modelserver.Call{modelserver.Shell("echo marker is $PROFILE_MARKER")}}, {Text: "Done."}},
		"polish": {{Text: "It shines."}},
	}, agent.LaunchInput{Profile: &profile.Spec{
		Instructions: "Always mind the instruction-marker.",
		Skills:       []profile.Text{{Name: "knitting", Description: "Use it for: \"skill-marker\" yarn", Content: "Knit."}},
		Subagents:    []profile.Text{{Name: "owl", Description: "Knows the agent-marker", Content: "You are an owl."}},
		Commands:     []profile.Text{{Name: "polish", Description: "Make it shine", Content: "{{polish}} command-marker \"{{args}}\"\nthoroughly"}},
		MCPServers: []profile.MCPServer{{
			Name: "demo", Command: self, Args: []string{"mcp"}, Environment: map[string]string{asBridge: "mcp", "MCP_MARKER": "mcp-marker"},
		}},
		Model:       "gemini-3-flash-preview",
		Environment: map[string]string{"PROFILE_MARKER": "environment-marker"},
	}})
	got := p.turn(t, "{{env}} please")
	require.Equal(t, session.OutcomeCompleted, got.End.Outcome, got.End.Reason)
	require.Equal(t, "gemini-3-flash-preview", got.End.Model)
	require.Contains(t, string(got.Only(t, conversation.ToolResult).Output), "marker is environment-marker")
	first := p.server.Requests()[0]
	require.Equal(t, "gemini-3-flash-preview", first.Model)
	for _, marker := range []string{"instruction-marker", "skill-marker", "agent-marker", "mcp-marker"} {
		require.Contains(t, first.System, marker, "want %s", marker)
	}
	require.Contains(t, first.Tools, "mcp_demo_echo")

	got = p.turn(t, "/polish the brass")
	require.Equal(t, session.OutcomeCompleted, got.End.Outcome, got.End.Reason)
	require.Equal(t, "/polish the brass", got.Only(t, conversation.UserMessage).Content)
	require.Equal(t, "It shines.", got.Only(t, conversation.AssistantText).Content)
	requests := p.server.Requests()
	prompts := requests[len(requests)-1].Prompts
	require.Equal(t, "{{polish}} command-marker \"the brass\"\nthoroughly", prompts[len(prompts)-1])
	p.Close(t)
	p.requireSame(t)
}

// serveMCP is an MCP server with one tool.
func serveMCP(r io.Reader, w io.Writer) int {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.Unmarshal(line, &m) != nil || m.ID == nil {
			continue
		}
		result := map[string]any{}
		switch m.Method {
		case "initialize":
			result = map[string]any{
				"protocolVersion": "2025-03-26", "capabilities": map[string]any{"tools": map[string]any{}},
				"serverInfo": map[string]any{"name": "demo", "version": "1"},
			}
		case "tools/list":
			result["tools"] = []map[string]any{{
				"name": "echo", "description": os.Getenv("MCP_MARKER"), "inputSchema": map[string]any{"type": "object", "properties": map[string]any{}},
			}}
		}
		b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
		if err != nil {
			return 1
		}
		if _, err := w.Write(append(b, '\n')); err != nil {
			return 0
		}
	}
}

// TestLoadedSessionKeepsMemoryWithoutQuestions checks that each call appears once, after the
// answer that made it, and that earlier permissions still apply.
func TestLoadedSessionKeepsMemoryWithoutQuestions(t *testing.T) {
	t.Parallel()
	p := start(t, map[string][]modelserver.Step{
		"two": {
			{Thinking: "I need two.", Text: "First.", Calls: []modelserver.Call{modelserver.Shell("echo one && echo more"), modelserver.ReadFile("nowhere")}},
			{Text: "Second.", Calls: []modelserver.Call{modelserver.Shell("echo three")}},
			{Text: "Over."},
		},
		"again":  {{Calls: []modelserver.Call{modelserver.Shell("echo one && echo more")}}, {Text: "Once more."}},
		"recall": {{Text: "I remember ", Recall: true}},
	}, agent.LaunchInput{})
	require.Equal(t, session.OutcomeCompleted, p.turn(t, "{{two}} at first").End.Outcome)
	for range 2 {
		p.Close(t)
		p.begin(t)
		got := p.turn(t, "{{recall}} it")
		require.Contains(t, got.Only(t, conversation.AssistantText).Content, "{{two}} at first")
		requests := p.server.Requests()
		last := requests[len(requests)-1]
		require.Equal(t, 3, last.Results, "each result once")
	}
	got := p.turn(t, "{{again}} now")
	require.Equal(t, session.OutcomeCompleted, got.End.Outcome, got.End.Reason)
	require.Empty(t, got.Questions)
	require.Equal(t, conversation.Success, got.Only(t, conversation.ToolUse).Status)
	p.Close(t)
	p.requireSame(t)
}

// TestTextIsUnchanged covers comments and zero-width characters, which the program does not
// store.
func TestTextIsUnchanged(t *testing.T) {
	t.Parallel()
	const text = "A family \U0001f469\u200d\U0001f469\u200d\U0001f467 and <!-- a comment --> a tail."
	p := start(t, map[string][]modelserver.Step{
		"odd":   {{Text: text + "\n\n", Calls: []modelserver.Call{modelserver.Shell("true")}}, {Text: "  over "}},
		"slow":  {{Text: long(), Pause: 20 * time.Millisecond}},
		"loop":  {{Text: strings.Repeat("over and over ", 200)}},
		"plain": {{Text: "Plain."}},
	}, agent.LaunchInput{})
	got := p.turn(t, "{{odd}} one")
	require.Equal(t, session.OutcomeCompleted, got.End.Outcome, got.End.Reason)
	var said []string
	for _, b := range got.Blocks() {
		if b.Type == conversation.AssistantText {
			said = append(said, b.Content)
		}
	}
	require.Equal(t, []string{text, "over"}, said)
	require.Positive(t, got.End.Usage.OutputTokens)

	got = p.turn(t, "{{loop}} it")
	require.Equal(t, session.OutcomeFailed, got.End.Outcome)
	require.Equal(t, "max_turn_requests", got.End.Reason, "the program does not go in circles twice")
	require.Equal(t, "reminder", got.Only(t, conversation.System).Subtype)

	run := agent.RunContext{RunID: session.NewID(session.RunPrefix)}
	line, err := gemini.New().Prompt(agent.PromptInput{RunID: run.RunID, Content: "{{slow}} now"})
	require.NoError(t, err)
	p.Write(t, append(line, gemini.New().Interrupt(run.RunID).Stdin...))
	require.Equal(t, session.OutcomeCancelled, p.Read(t, gemini.New(), run, p.saw).End.Outcome, "an interrupt may come at once")
	p.Write(t, gemini.New().Interrupt(run.RunID).Stdin)
	require.Equal(t, session.OutcomeCompleted, p.turn(t, "{{plain}} then").End.Outcome, "a late one hits no other run")
	p.Close(t)
	p.requireSame(t)
}

// TestDeniedToolIsNotOffered also checks that a tool allowed for the session asks only once.
func TestDeniedToolIsNotOffered(t *testing.T) {
	t.Parallel()
	write := modelserver.Call{Tool: "write_file", Input: map[string]any{"file_path": "a.txt", "content": "a"}}
	other := modelserver.Call{Tool: "write_file", Input: map[string]any{"file_path": "b.txt", "content": "b"}}
	p := start(t, map[string][]modelserver.Step{
		"twice": {{Calls: []modelserver.Call{write}}, {Calls: []modelserver.Call{other}}, {Text: "Both."}},
	}, agent.LaunchInput{Permissions: permission.Rules{
		Default: permission.Ask, Tools: map[string]permission.Policy{"run_shell_command": permission.Deny},
	}})
	got := p.turn(t, "{{twice}} please", agent.Answer{Decision: agent.DecisionSession})
	require.Equal(t, session.OutcomeCompleted, got.End.Outcome, got.End.Reason)
	require.Len(t, got.Questions, 1)
	require.Equal(t, "write_file", got.Questions[0].ToolName)
	first := p.server.Requests()[0]
	require.Contains(t, first.Tools, "write_file")
	require.NotContains(t, first.Tools, "run_shell_command")
	require.FileExists(t, filepath.Join(p.input.Workspace, "b.txt"))
	p.Close(t)
	p.requireSame(t)
}

func TestImagesOfPromptReachModel(t *testing.T) {
	t.Parallel()
	p := start(t, map[string][]modelserver.Step{"see": {{Text: "A dot."}}}, agent.LaunchInput{})
	images := program.Pictures(t, p.input.Workspace)
	in := agent.PromptInput{RunID: session.NewID(session.RunPrefix), PromptID: "prm_1", Content: "{{see}} it", Images: images}
	got := p.Prompt(t, gemini.New(), in, p.saw)
	require.Equal(t, session.OutcomeCompleted, got.End.Outcome, got.End.Reason)
	require.Equal(t, "{{see}} it", got.Only(t, conversation.UserMessage).Content)
	program.RequireSent(t, p.server.Sent(), images)
	p.Close(t)
	p.requireSame(t)
}
