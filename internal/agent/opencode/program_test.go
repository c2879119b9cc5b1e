package opencode_test

import (
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
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/scripted"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const testSession = "ses_0193a5f07c7e7b3e8f0a1b2c3d4e5f60"

// waitLimit bounds how long a test waits for the program.
const waitLimit = 2 * time.Minute

// cli is the bridge with the real OpenCode and its own model server.
type cli struct {
	*program.Process
	server          *modelserver.Server
	home, workspace string
	folder          conversation.Folder
	// allModels makes the program use its own list of models.
	allModels bool
}

func newProgram(t *testing.T, scripts map[string][]modelserver.Step) *cli {
	t.Helper()
	p := &cli{server: modelserver.New(scripts), home: t.TempDir(), workspace: t.TempDir()}
	t.Cleanup(p.server.Close)
	return p
}

// begin starts the program's process.
func (p *cli) begin(t *testing.T, in agent.LaunchInput, flags ...string) {
	t.Helper()
	in.SessionID, in.Home, in.Workspace = testSession, p.home, p.workspace
	launch, err := opencode.New().Launch(in)
	require.NoError(t, err)
	cmd := command(t, p.server.URL(), launch, flags...)
	if !p.allModels {
		cmd.Env = append(cmd.Env, fewModels(t))
	}
	p.Process = program.Start(t, cmd, launch)
}

// run runs a prompt until found reports true or the turn has ended, and answers the agent's
// questions meanwhile.
func (p *cli) run(t *testing.T, run agent.RunContext, content string, found func(conversation.Event) bool, answers ...agent.Answer) program.Turn {
	t.Helper()
	out := p.Prompt(t, opencode.New(), agent.PromptInput{RunID: run.RunID, Content: content}, found, answers...)
	for _, e := range out.Events {
		p.folder.Add(e)
	}
	return out
}

// turn runs a prompt to its end.
func (p *cli) turn(t *testing.T, content string, answers ...agent.Answer) program.Turn {
	t.Helper()
	return p.run(t, agent.RunContext{RunID: session.NewID(session.RunPrefix)}, content, nil, answers...)
}

// files returns the saved sessions.
func (p *cli) files(t *testing.T) []string {
	t.Helper()
	launch, err := opencode.New().Launch(agent.LaunchInput{SessionID: testSession, Home: p.home, Workspace: p.workspace})
	require.NoError(t, err)
	names, err := filepath.Glob(launch.Transcripts[0])
	require.NoError(t, err)
	return names
}

// agree compares the transcript with the stream.
func (p *cli) agree(t *testing.T) {
	t.Helper()
	require.Empty(t, cmp.Diff(capture.Lines(parse(t, p.files(t)...)), capture.Lines(p.folder.Conversation())), "- parsed, + streamed")
}

// TestProfileReachesModel looks for a marker of each part of a profile in the requests that the
// real program sends to the model.
func TestProfileReachesModel(t *testing.T) {
	t.Parallel()
	script := program.EchoServer(t)
	spec := profile.Spec{
		Instructions: "marker-instructions: be brief",
		Skills:       []profile.Text{{Name: "skilled", Description: "marker-skill: use it", Content: "body of the skill"}},
		Subagents:    []profile.Text{{Name: "helper", Description: `marker-subagent: "quoted"`, Content: "body of the subagent"}},
		Commands:     []profile.Text{{Name: "greet", Content: "{{hello}} marker-command $ARGUMENTS"}},
		MCPServers:   []profile.MCPServer{{Name: "demo", Command: "sh", Args: []string{script}}},
		Model:        "anthropic/claude-haiku-4-5",
		Permissions:  permission.Rules{Tools: map[string]permission.Policy{"webfetch": permission.Deny, "write": permission.Ask}},
	}
	p := newProgram(t, map[string][]modelserver.Step{
		"hello": {{Text: "Hello."}},
		"write": {
			{Calls: []modelserver.Call{{Tool: "write", Input: map[string]any{"filePath": "note.txt", "content": "x"}}}},
			{Text: "It is written."},
		},
	})
	p.allModels = true
	in := agent.LaunchInput{Home: p.home, Profile: &spec, Permissions: spec.Permissions}
	files, err := opencode.New().ProfileFiles(in)
	require.NoError(t, err)
	for _, f := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(f.Path), 0o700))
		require.NoError(t, os.WriteFile(f.Path, f.Data, 0o600))
	}
	p.begin(t, in)
	r := p.turn(t, "/greet you")
	require.Equal(t, session.OutcomeCompleted, r.End.Outcome, r.End.Reason)
	require.Equal(t, "anthropic/claude-haiku-4-5", r.End.Model)
	sent := p.server.Sent()
	for _, marker := range []string{"marker-instructions", "marker-skill", "marker-subagent", "marker-command you", "demo_echo"} {
		if !strings.Contains(sent, marker) { // the request is too long to be shown
			require.Failf(t, "the model does not get it", "the request lacks %s", marker)
		}
	}
	requests := p.server.Requests()
	last := requests[len(requests)-1]
	require.Contains(t, last.Tools, "bash")
	require.NotContains(t, last.Tools, "webfetch", "it is denied by name")
	require.Equal(t, "claude-haiku-4-5", last.Model)

	r = p.turn(t, "{{write}} it", agent.Answer{Decision: agent.DecisionOnce})
	require.Equal(t, "write", r.Questions[0].ToolName, "OpenCode itself asks about edit")
	require.Equal(t, r.Only(t, conversation.ToolUse).ID, r.Questions[0].ToolUseID)
	require.FileExists(t, filepath.Join(p.workspace, "note.txt"))
	p.agree(t)
	installed, err := os.ReadDir(filepath.Join(p.home, ".config/opencode/node_modules"))
	require.NoError(t, err)
	require.Empty(t, installed, "OpenCode has fetched something")
	p.Close(t)
}

func TestCompactsAfterFailedAttempt(t *testing.T) {
	t.Parallel()
	p := newProgram(t, map[string][]modelserver.Step{
		"hello": {{Text: "Hello."}},
		"env":   {{Calls: []modelserver.Call{bash("env; echo \"$0\"")}}, {Text: "There it is."}},
		"cut":   {{Text: strings.Repeat("word ", 40), Cut: true, Pause: 2 * time.Millisecond}},
	})
	p.begin(t, agent.LaunchInput{}, "--retries", "2")
	p.turn(t, "{{hello}} to the zebra")
	r := p.turn(t, "{{cut}} it")
	require.Equal(t, session.OutcomeFailed, r.End.Outcome)
	p.agree(t)

	r = p.turn(t, "{{env}} of your tools")
	printed := string(r.Only(t, conversation.ToolResult).Output)
	require.Contains(t, printed, "HOME=")
	require.NotContains(t, printed, "sk-ant-none", "tools have the key")
	require.NotContains(t, printed, "PASSWORD")
	p.agree(t)

	r = p.turn(t, "/compact")
	require.Equal(t, session.OutcomeCompleted, r.End.Outcome, r.End.Reason)
	require.Equal(t, "compaction", r.Only(t, conversation.System).Subtype)
	require.NotEmpty(t, r.Only(t, conversation.System).Message)
	p.agree(t)
	p.Close(t)
}

func TestContinuesInterruptedPrompt(t *testing.T) {
	t.Parallel()
	p := newProgram(t, map[string][]modelserver.Step{
		"wait":  {{Text: "This takes long.", Calls: []modelserver.Call{bash(scripted.UntilKilled)}}, {Text: "I have continued."}},
		"hello": {{Text: "Hello."}},
	})
	p.begin(t, agent.LaunchInput{})
	run := agent.RunContext{RunID: session.NewID(session.RunPrefix)}
	p.run(t, run, "{{wait}} for it", func(e conversation.Event) bool {
		d, ok := e.Data.(conversation.BlockUpdate)
		return ok && d.Updates.Status == conversation.Running
	})
	require.Eventually(t, func() bool {
		c := parse(t, p.files(t)...)
		return len(c.Threads[0].Blocks) == 3 // prompt, text, call
	}, waitLimit, 20*time.Millisecond)
	require.NoError(t, p.Cmd.Process.Kill())
	p.Wait(t)

	p.begin(t, agent.LaunchInput{Resume: true})
	r := p.run(t, run, "{{wait}} for it", nil)
	require.Equal(t, session.OutcomeCompleted, r.End.Outcome, r.End.Reason)
	require.Equal(t, "I have continued.", r.Only(t, conversation.AssistantText).Content)
	require.Len(t, p.server.Requests()[len(p.server.Requests())-1].Prompts, 1, "the model has the prompt once")
	p.agree(t)
	p.Close(t)
}

func TestStartsFreshIfSessionIsUnreadable(t *testing.T) {
	t.Parallel()
	p := newProgram(t, map[string][]modelserver.Step{"hello": {{Text: "Hello."}}})
	dir := filepath.Join(p.home, ".local/share/overwinter/opencode", testSession)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ses_cut.json"), []byte(`{"info":{"id":"ses_cut"},"mess`), 0o600))
	p.begin(t, agent.LaunchInput{Resume: true})
	require.Equal(t, session.OutcomeCompleted, p.turn(t, "{{hello}} you").End.Outcome)
	p.agree(t)
	p.Close(t)
}

func TestImagesOfPromptReachModel(t *testing.T) {
	t.Parallel()
	p := newProgram(t, map[string][]modelserver.Step{"see": {{Text: "A dot."}}})
	p.begin(t, agent.LaunchInput{Model: "anthropic/claude-haiku-4-5"})
	run := session.NewID(session.RunPrefix)
	images := program.Pictures(t, p.workspace)
	got := p.Prompt(t, opencode.New(), agent.PromptInput{RunID: run, Content: "{{see}} it", Images: images}, nil)
	for _, e := range got.Events {
		p.folder.Add(e)
	}
	require.Equal(t, session.OutcomeCompleted, got.End.Outcome, got.End.Reason)
	require.Equal(t, "{{see}} it", got.Only(t, conversation.UserMessage).Content)
	program.RequireSent(t, p.server.Sent(), images)
	require.Zero(t, p.Close(t))
	p.agree(t)
}
