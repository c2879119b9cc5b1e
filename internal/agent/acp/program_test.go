package acp_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/acp"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/program"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini"
	"github.com/overwinter-dev/overwinter/internal/agent/npm/npmtest"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode"
	"github.com/overwinter-dev/overwinter/internal/agenttool"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// talk is an agent with its bridge and the conversation so far.
type talk struct {
	adapter profiled
	input   agent.LaunchInput
	*program.Process
	folder conversation.Folder
	images []agent.Image // sent with the prompts
	// seen, if set, receives all events of a turn with its run id.
	seen func(runID string, e conversation.Event)
}

// begin starts the agent's process as described by in, in a new home.
func begin(t *testing.T, adapter profiled, in agent.LaunchInput) *talk {
	t.Helper()
	k := &talk{adapter: adapter, input: in}
	k.input.SessionID, k.input.Home, k.input.Workspace = session.NewID(session.SessionPrefix), t.TempDir(), t.TempDir()
	k.start(t)
	return k
}

func (k *talk) start(t *testing.T) {
	t.Helper()
	launch, err := k.adapter.Launch(k.input)
	require.NoError(t, err)
	k.Process = program.Start(t, command(t, launch), launch)
}

// turn runs a prompt to its end and answers the agent's questions meanwhile.
func (k *talk) turn(t *testing.T, content string, answers ...agent.Answer) program.Turn {
	t.Helper()
	runID := session.NewID(session.RunPrefix)
	return k.Prompt(t, k.adapter, agent.PromptInput{RunID: runID, Content: content, Images: k.images}, func(e conversation.Event) bool {
		k.folder.Add(e)
		if k.seen != nil {
			k.seen(runID, e)
		}
		return false
	}, answers...)
}

// requireSame compares the streamed blocks with the transcript.
func (k *talk) requireSame(t *testing.T) {
	t.Helper()
	launch, err := k.adapter.Launch(k.input)
	require.NoError(t, err)
	data, err := os.ReadFile(launch.Transcripts[0])
	require.NoError(t, err)
	parsed, err := k.adapter.Parse([]transcript.File{{Path: launch.Transcripts[0], Data: data}})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(parsed, k.folder.Conversation()), "- parsed, + streamed")
}

// geminiCLI returns the adapter with Gemini CLI, which uses a model server.
func geminiCLI(t *testing.T, server *modelserver.Server) profiled {
	t.Helper()
	js := filepath.Join(npmtest.Directory(t, gemini.New().Packages()[0]), "bundle", "gemini.js")
	adapter := withCommand(t, "node", js, "--acp", "--model", gemini.DefaultModel)
	maps.Copy(adapter.profile.Environment, map[string]string{
		gemini.SecretKey: "none", gemini.SecretBaseURL: server.URL(), "GEMINI_CLI_NO_RELAUNCH": "true",
		"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_TELEMETRY_ENABLED": "false",
	})
	return adapter
}

// useKey configures Gemini CLI to use an API key, in the home of a talk.
func (k *talk) useKey(t *testing.T) {
	t.Helper()
	settings := filepath.Join(k.input.Home, ".gemini", "settings.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(settings), 0o700))
	require.NoError(t, os.WriteFile(settings, []byte(`{"security":{"auth":{"selectedType":"gemini-api-key"}},"privacy":{"usageStatisticsEnabled":false}}`), 0o600))
}

// openCode returns the adapter with OpenCode, which uses a model server.
func openCode(t *testing.T, server *modelserver.Server) profiled {
	t.Helper()
	models, err := filepath.Abs("../opencode/testdata/models.json")
	require.NoError(t, err)
	adapter := withCommand(t, filepath.Join(npmtest.Directory(t, opencode.New().Packages()[0]), "bin", "opencode"), "acp")
	maps.Copy(adapter.profile.Environment, map[string]string{
		acp.EnvTranscripts: ".local/share/opencode/opencode.db*",
		"OPENCODE_CONFIG_CONTENT": `{"provider":{"anthropic":{"options":{"baseURL":"` + server.URL() + `/v1","apiKey":"none"}}},` +
			`"model":"anthropic/claude-sonnet-4-5","permission":{"bash":"ask"},"share":"disabled","autoupdate":false}`,
		"OPENCODE_MODELS_PATH": models, "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
		"BUN_JSC_useDFGJIT": "0", "BUN_JSC_useConcurrentGC": "0", // its start lasts too short for what they gain
	})
	return adapter
}

// TestRealAgent runs Gemini CLI as an example: it answers, asks for permission, and remembers in
// an empty home.
func TestRealAgent(t *testing.T) {
	t.Parallel()
	server := modelserver.New(map[string][]modelserver.Step{
		"hello": {{Thinking: "I greet.", Text: "Hello to you."}},
		"write": {
			{Text: "I write.", Calls: []modelserver.Call{{Tool: "write_file", Input: map[string]any{"file_path": "a.txt", "content": "a"}}}},
			{Text: "Written."},
		},
		"over": {{Text: "It is over."}},
	})
	t.Cleanup(server.Close)
	adapter := geminiCLI(t, server)
	adapter.profile.Instructions = "Mind the instruction-marker."
	k := begin(t, adapter, agent.LaunchInput{Permissions: permission.Rules{Default: permission.Ask}})
	k.useKey(t)
	images := program.Pictures(t, k.input.Workspace)
	k.images = images
	got := k.turn(t, "{{hello}} to the zebra")
	program.RequireSent(t, server.Sent(), images)
	k.images = nil
	require.Equal(t, session.OutcomeCompleted, got.End.Outcome, got.End.Reason)
	require.Equal(t, "Hello to you.", got.Only(t, conversation.AssistantText).Content)
	require.NotEmpty(t, got.Only(t, conversation.Thinking).Content)
	require.Positive(t, got.End.Usage.OutputTokens)
	require.Contains(t, server.Requests()[0].Prompts[0], "instruction-marker")
	got = k.turn(t, "{{write}} it", agent.Answer{Decision: agent.DecisionOnce})
	require.Equal(t, session.OutcomeCompleted, got.End.Outcome, got.End.Reason)
	require.Len(t, got.Questions, 1)
	require.Equal(t, conversation.Success, got.Only(t, conversation.ToolUse).Status)
	require.FileExists(t, filepath.Join(k.input.Workspace, "a.txt"))
	require.Zero(t, k.Close(t))
	k.requireSame(t)

	require.NoError(t, os.RemoveAll(filepath.Join(k.input.Home, ".gemini", "tmp")))
	k.start(t)
	got = k.turn(t, "{{over}} now")
	require.Equal(t, session.OutcomeCompleted, got.End.Outcome, got.End.Reason)
	require.Equal(t, "memory_retold", got.Only(t, conversation.System).Subtype)
	requests := server.Requests()
	require.Contains(t, requests[len(requests)-1].Prompts[0], "{{hello}} to the zebra")
	require.Zero(t, k.Close(t))
	k.requireSame(t)
}

// TestRealAgentCallsTool runs Gemini CLI and OpenCode, which start the server of overwinter's tools because their session names it.
func TestRealAgentCallsTool(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tool  string // the agent's name of the tool
		agent func(*testing.T, *modelserver.Server) profiled
	}{
		"gemini":   {"mcp_overwinter_set_title", geminiCLI},
		"opencode": {"overwinter_set_title", openCode},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := modelserver.New(map[string][]modelserver.Step{
				"title": {{Text: "I name it.", Calls: []modelserver.Call{{Tool: c.tool, Input: map[string]any{"title": "Winter"}}}}, {Text: "Named."}},
			})
			t.Cleanup(server.Close)
			argv, made := agenttest.OfferTools(t)
			k := begin(t, c.agent(t, server), agent.LaunchInput{Tools: argv})
			k.useKey(t)
			got := k.turn(t, "{{title}} it")
			require.Equal(t, session.OutcomeCompleted, got.End.Outcome, got.End.Reason)
			require.Empty(t, got.Questions)
			calls := made()
			require.Len(t, calls, 1)
			require.Equal(t, agenttool.SetTitle, calls[0].Tool)
			require.JSONEq(t, `{"title":"Winter"}`, string(calls[0].Input))
			require.Equal(t, conversation.Success, got.Only(t, conversation.ToolUse).Status)
			require.Contains(t, string(got.Only(t, conversation.ToolResult).Output), "has this title now")
			require.Zero(t, k.Close(t))
			k.requireSame(t)
		})
	}
}

// TestAgentWithMemory runs OpenCode as an example, with the files in which it keeps its
// memory: it asks for permission, responds to an abort, reports that its model fails, and resumes
// in a home with only those files.
func TestAgentWithMemory(t *testing.T) {
	t.Parallel()
	bash := func(command string) []modelserver.Call {
		return []modelserver.Call{{Tool: "bash", Input: map[string]any{"command": command, "description": "Run a command"}}}
	}
	server := modelserver.New(map[string][]modelserver.Step{
		"write":   {{Text: "I write.", Calls: bash("echo a >a.txt")}, {Text: "Written."}},
		"wait":    {{Text: "This takes long.", Calls: bash("tail --pid=$PPID -f /dev/null")}, {Text: "It took long."}},
		"refused": {{Status: 400}},
		"recall":  {{Text: "I remember ", Recall: true}},
	})
	t.Cleanup(server.Close)
	adapter := openCode(t, server)
	k := begin(t, adapter, agent.LaunchInput{
		Permissions: permission.Rules{Default: permission.Ask}, Model: "anthropic/claude-haiku-4-5",
	})
	got := k.turn(t, "{{write}} for the zebra", agent.Answer{Decision: agent.DecisionOnce})
	require.Equal(t, session.OutcomeCompleted, got.End.Outcome, got.End.Reason)
	require.Positive(t, got.End.Usage.OutputTokens)
	require.Len(t, got.Questions, 1)
	require.Equal(t, "bash", got.Questions[0].ToolName)
	use := got.Only(t, conversation.ToolUse)
	require.Equal(t, conversation.Success, use.Status)
	require.Contains(t, string(use.Input), `"description"`, "the question knows less of it than the call")
	require.FileExists(t, filepath.Join(k.input.Workspace, "a.txt"))
	require.Equal(t, "claude-haiku-4-5", server.Requests()[0].Model)

	got = k.turn(t, "{{write}} again", agent.Answer{Decision: agent.DecisionReject})
	require.Equal(t, conversation.Failed, got.Only(t, conversation.ToolUse).Status)

	got = k.turn(t, "{{refused}} it")
	require.Equal(t, session.OutcomeFailed, got.End.Outcome)
	require.NotEmpty(t, got.End.Reason)

	k.seen = func(runID string, e conversation.Event) {
		if u, ok := e.Data.(conversation.BlockUpdate); ok && u.Updates.Status == conversation.Running {
			k.Write(t, k.adapter.Interrupt(runID).Stdin)
		}
	}
	got = k.turn(t, "{{wait}} for it", agent.Answer{Decision: agent.DecisionOnce})
	require.Equal(t, session.OutcomeCancelled, got.End.Outcome, got.End.Reason)
	require.Equal(t, conversation.Aborted, got.Only(t, conversation.ToolUse).Status)
	k.seen = nil
	require.Zero(t, k.Close(t))
	k.requireSame(t)

	k.move(t)
	k.start(t)
	got = k.turn(t, "{{recall}} it")
	require.Equal(t, session.OutcomeCompleted, got.End.Outcome, got.End.Reason)
	require.Contains(t, got.Only(t, conversation.AssistantText).Content, "zebra")
	for _, b := range got.Blocks() {
		require.NotEqual(t, conversation.System, b.Type, "it has not forgotten: %s", b.Message)
	}
	require.Zero(t, k.Close(t))
	k.requireSame(t)
}

// move gives the session a new home that contains only its transcripts.
func (k *talk) move(t *testing.T) {
	t.Helper()
	launch, err := k.adapter.Launch(k.input)
	require.NoError(t, err)
	home := t.TempDir()
	for _, pattern := range launch.Transcripts {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, names, "there is nothing at %s", pattern)
		for _, name := range names {
			rel, err := filepath.Rel(k.input.Home, name)
			require.NoError(t, err)
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(home, rel)), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(home, rel), data, 0o600))
		}
	}
	k.input.Home = home
}

func TestFailuresAreReported(t *testing.T) {
	t.Parallel()
	k := begin(t, scriptedAgent(t), agent.LaunchInput{Model: "clever"})
	got := k.turn(t, "refuse it")
	require.Equal(t, session.OutcomeFailed, got.End.Outcome)
	require.Equal(t, "refusal", got.End.Reason)
	require.Equal(t, "clever", got.End.Model)
	got = k.turn(t, "files please")
	require.Equal(t, session.OutcomeCompleted, got.End.Outcome, "a request without a handler is refused")
	got = k.turn(t, "error please")
	require.Equal(t, "the model is out of order", got.End.Reason)
	require.Equal(t, "error", got.Only(t, conversation.System).Subtype)
	require.Zero(t, k.Close(t))
	k.requireSame(t)

	k = begin(t, scriptedAgent(t), agent.LaunchInput{Model: "unheard-of"})
	got = k.turn(t, "hello")
	require.Equal(t, session.OutcomeFailed, got.End.Outcome)
	require.Contains(t, got.End.Reason, "there is no such model")
	require.Equal(t, 1, k.Wait(t))
	k.requireSame(t)
}

func TestEndedAgentIsReported(t *testing.T) {
	t.Parallel()
	k := begin(t, scriptedAgent(t), agent.LaunchInput{})
	line, err := k.adapter.Prompt(agent.PromptInput{RunID: session.NewID(session.RunPrefix), Content: "exit"})
	require.NoError(t, err)
	k.Write(t, line)
	require.Equal(t, 3, k.Wait(t))
}

func TestWithoutCommandNothingStarts(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"", "  ", `[]`, `["x"`, `[""]`} {
		k := begin(t, profiled{profile: profile.Spec{Environment: map[string]string{acp.EnvCommand: line}}}, agent.LaunchInput{})
		require.Equal(t, 2, k.Wait(t), "%q", line)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	k := begin(t, profiled{profile: profile.Spec{Environment: map[string]string{acp.EnvCommand: "'" + self + "' scripted --load"}}}, agent.LaunchInput{})
	require.Equal(t, session.OutcomeCompleted, k.turn(t, "hello").End.Outcome, "a line for the shell")
	require.Zero(t, k.Close(t))
}
