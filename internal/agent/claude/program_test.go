package claude_test

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
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// asking are permissions that make the agent ask.
var asking = permission.Rules{Default: permission.Ask}

// cli is the real Claude Code with its own model server.
type cli struct {
	*program.Process
	server          *modelserver.Server
	launch          agent.Launch
	home, workspace string
	folder          conversation.Folder
}

// startWith is start with a profile, whose files it writes as in a sandbox.
func startWith(t *testing.T, spec profile.Spec, scripts map[string][]modelserver.Step) *cli {
	t.Helper()
	p := &cli{server: modelserver.New(scripts), home: t.TempDir(), workspace: t.TempDir()}
	t.Cleanup(p.server.Close)
	in := agent.LaunchInput{SessionID: session.NewID(session.SessionPrefix), Profile: &spec, Permissions: spec.Permissions, Home: p.home, Workspace: p.workspace}
	program.WriteProfile(t, claude.New(), in)
	p.begin(t, in)
	return p
}

func start(t *testing.T, permissions permission.Rules, scripts map[string][]modelserver.Step) *cli {
	t.Helper()
	p := &cli{server: modelserver.New(scripts), home: t.TempDir(), workspace: t.TempDir()}
	t.Cleanup(p.server.Close)
	p.begin(t, agent.LaunchInput{SessionID: session.NewID(session.SessionPrefix), Permissions: permissions})
	return p
}

// begin starts the program's process.
func (p *cli) begin(t *testing.T, in agent.LaunchInput) {
	t.Helper()
	in.Home, in.Workspace = p.home, p.workspace
	launch, err := claude.New().Launch(in)
	require.NoError(t, err)
	p.launch = launch
	cmd := command(t, p.server.URL(), launch)
	cmd.Env = append(cmd.Env, "CLAUDE_CODE_MAX_RETRIES=2")
	p.Process = program.Start(t, cmd, launch)
}

// turn runs a prompt to its end and answers the agent's questions meanwhile.
func (p *cli) turn(t *testing.T, content string, answers ...agent.Answer) program.Turn {
	t.Helper()
	in := agent.PromptInput{RunID: session.NewID(session.RunPrefix), Content: content}
	return p.Prompt(t, claude.New(), in, func(e conversation.Event) bool {
		p.folder.Add(e)
		return false
	}, answers...)
}

// agree ends the program and compares its transcript with its stream.
func (p *cli) agree(t *testing.T) {
	t.Helper()
	p.Close(t)
	parsed, err := claude.New().Parse(program.Files(t, p.launch))
	require.NoError(t, err)
	streamed := p.folder.Conversation()
	forgetTimes(parsed, streamed)
	require.Empty(t, cmp.Diff(capture.Lines(parsed), capture.Lines(streamed)), "- parsed, + streamed")
}

func TestPermissionIsRequested(t *testing.T) {
	t.Parallel()
	p := start(t, asking, map[string][]modelserver.Step{
		"touch": {
			{Text: "May I?", Calls: []modelserver.Call{modelserver.Bash("touch permitted && echo touched")}},
			{Text: "So be it."},
		},
	})
	file := filepath.Join(p.workspace, "permitted")

	no := p.turn(t, "{{touch}} it", agent.Answer{Decision: agent.DecisionReject, Message: "not now"})
	require.NoFileExists(t, file)
	require.Equal(t, session.OutcomeCompleted, no.End.Outcome)
	require.Equal(t, conversation.Failed, no.Only(t, conversation.ToolUse).Status)
	require.Contains(t, string(no.Only(t, conversation.ToolResult).Output), "not now")
	q := no.Questions[0]
	require.Equal(t, agent.Permission, q.Kind)
	require.Equal(t, "Bash", q.ToolName)
	require.Equal(t, no.Only(t, conversation.ToolUse).ID, q.ToolUseID)
	require.Equal(t, []string{q.ID}, no.Resolved)

	once := p.turn(t, "{{touch}} it", agent.Answer{Decision: agent.DecisionOnce})
	require.FileExists(t, file)
	require.Equal(t, conversation.Success, once.Only(t, conversation.ToolUse).Status)

	p.turn(t, "{{touch}} it", agent.Answer{Decision: agent.DecisionSession})
	p.turn(t, "{{touch}} it") // allowed now without asking
	p.agree(t)
}

func TestUserQuestionIsAsked(t *testing.T) {
	t.Parallel()
	p := start(t, asking, map[string][]modelserver.Step{
		"ask": {{Calls: []modelserver.Call{modelserver.Ask("Which colour?", "Red", "Blue")}}, {Text: "Thank you."}},
	})
	r := p.turn(t, "{{ask}} me", agent.Answer{Decision: agent.DecisionOnce, Answers: question.TextEach(map[string]string{"Which colour?": "Green"})})
	require.Equal(t, agent.Inquiry, r.Questions[0].Kind)
	require.Equal(t, "Which colour?", r.Questions[0].Title)
	require.Len(t, r.Questions[0].Inquiries[0].Options, 2)
	require.Contains(t, string(r.Only(t, conversation.ToolResult).Output), "Green")
	p.agree(t)
}

func TestModelServerFailuresAreReported(t *testing.T) {
	t.Parallel()
	p := start(t, permission.Rules{}, map[string][]modelserver.Step{
		"refused":    {{Status: 400}},
		"overloaded": {{Status: 529}},
		"hello":      {{Text: "Hello."}},
	})
	r := p.turn(t, "{{refused}} it")
	require.Equal(t, session.OutcomeFailed, r.End.Outcome)
	require.Contains(t, r.End.Reason, "scripted error 400")
	b := r.Only(t, conversation.System)
	require.Equal(t, "error", b.Subtype)
	require.Contains(t, b.Message, "scripted error 400")

	r = p.turn(t, "{{overloaded}} it")
	require.Equal(t, session.OutcomeFailed, r.End.Outcome)
	var subtypes []string
	for _, b := range r.Blocks()[1:] {
		subtypes = append(subtypes, b.Subtype)
	}
	require.Equal(t, []string{"retry", "retry", "error"}, subtypes)
	require.Equal(t, session.OutcomeCompleted, p.turn(t, "{{hello}} again").End.Outcome)
	p.agree(t)
}

func TestLostModelConnectionIsRetried(t *testing.T) {
	t.Parallel()
	p := start(t, permission.Rules{}, map[string][]modelserver.Step{
		"cut": {{Text: strings.Repeat("word ", 40), Cut: true, Pause: 5 * time.Millisecond}},
	})
	p.turn(t, "{{cut}} it")
	p.agree(t)
}

func TestRunsToolsAndSubagentsSideBySide(t *testing.T) {
	t.Parallel()
	p := start(t, permission.Rules{}, map[string][]modelserver.Step{
		"tools": {
			{Text: "Both.", Calls: []modelserver.Call{modelserver.Bash("echo one"), modelserver.Bash("echo two")}},
			{Text: "Done."},
		},
		"subagents": {
			{Text: "Both.", Calls: []modelserver.Call{modelserver.Subagent("{{child}} A", false), modelserver.Subagent("{{child}} B", true)}},
			{Text: "Waiting."},
			{Text: "Done."},
			{Text: "Done indeed."},
		},
		"child": {{Text: "Looking.", Calls: []modelserver.Call{modelserver.Bash("echo here")}}, {Text: "Seen."}},
	})
	r := p.turn(t, "{{tools}} please")
	require.EqualValues(t, 2, r.End.Usage.ToolCalls)
	require.Positive(t, r.End.Usage.CostUSD)
	r = p.turn(t, "{{subagents}} please")
	require.Equal(t, session.OutcomeCompleted, r.End.Outcome)
	require.EqualValues(t, 4, r.End.Usage.ToolCalls)
	require.Len(t, p.folder.Conversation().Threads, 3)
	for _, b := range r.Blocks() {
		if b.Type == conversation.Subagent {
			require.Equal(t, conversation.Success, b.Status)
			require.NotEmpty(t, b.SubagentID)
		}
	}
	p.agree(t)
}

func TestCompactedConversationIsRemembered(t *testing.T) {
	t.Parallel()
	p := start(t, permission.Rules{}, map[string][]modelserver.Step{"hello": {{Text: "Hello."}}, "recall": {{Recall: true}}})
	p.turn(t, "{{hello}} to the zebra")
	r := p.turn(t, "/compact")
	require.Equal(t, session.OutcomeCompleted, r.End.Outcome)
	var compaction conversation.Block
	for _, b := range r.Blocks() {
		if b.Subtype == "compaction" {
			compaction = b
		}
	}
	require.Contains(t, compaction.Message, "zebra")
	p.turn(t, "{{recall}} it")
	requests := p.server.Requests()
	require.Contains(t, requests[len(requests)-1].Prompts[0], "zebra", "the model was sent the summary")
	p.agree(t)
}

func TestStartsFreshWithoutTranscript(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]string{
		"no transcript":     "",
		"an empty one":      " ",
		"one of no message": `{"type":"queue-operation","operation":"enqueue","timestamp":"2026-11-21T00:00:00.000Z","sessionId":"x"}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &cli{
				server: modelserver.New(map[string][]modelserver.Step{"hello": {{Text: "Hello."}}}), home: t.TempDir(), workspace: t.TempDir(),
			}
			t.Cleanup(p.server.Close)
			in := agent.LaunchInput{SessionID: testSession, Resume: true}
			if left != "" {
				file := filepath.Join(p.home, ".claude/projects/-workspace/0193a5f0-7c7e-7b3e-8f0a-1b2c3d4e5f60.jsonl")
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
				require.NoError(t, os.WriteFile(file, []byte(left), 0o600))
			}
			p.begin(t, in)
			require.Equal(t, session.OutcomeCompleted, p.turn(t, "{{hello}} you").End.Outcome)
			p.agree(t)
		})
	}
}

func TestImagesOfPromptReachModel(t *testing.T) {
	t.Parallel()
	p := start(t, permission.Rules{}, map[string][]modelserver.Step{"see": {{Text: "A dot."}}})
	images := program.Pictures(t, p.workspace)
	unsent := images[0]
	unsent.Data = nil
	in := agent.PromptInput{RunID: session.NewID(session.RunPrefix), Content: "{{see}} it", Images: append(images, unsent)}
	got := p.Prompt(t, claude.New(), in, func(e conversation.Event) bool {
		p.folder.Add(e)
		return false
	})
	require.Equal(t, session.OutcomeCompleted, got.End.Outcome, got.End.Reason)
	program.RequireSent(t, p.server.Sent(), images)
	p.agree(t)
}
