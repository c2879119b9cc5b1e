package claude_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/question"
)

const testSession = "ses_0193a5f07c7e7b3e8f0a1b2c3d4e5f60"

func TestLaunchNamesSessionByUUIDInItsID(t *testing.T) {
	t.Parallel()
	in := agent.LaunchInput{SessionID: testSession, Home: "/root", Workspace: "/workspace", Model: "opus"}
	first, err := claude.New().Launch(in)
	require.NoError(t, err)
	require.Subset(t, first.Argv, []string{"--session-id", "0193a5f0-7c7e-7b3e-8f0a-1b2c3d4e5f60", "--model", "opus", "--dangerously-skip-permissions"})
	require.Equal(t, "/root/.claude/projects/*/0193a5f0-7c7e-7b3e-8f0a-1b2c3d4e5f60.jsonl", first.Transcripts[0])
	require.Equal(t, "1", first.Env["IS_SANDBOX"])
	require.Contains(t, first.Secrets, "ANTHROPIC_API_KEY")

	in.Resume = true
	second, err := claude.New().Launch(in)
	require.NoError(t, err)
	require.Equal(t, "/bin/sh", second.Argv[0])
	require.Contains(t, second.Argv[2], "--resume")
	require.Equal(t, first.Key, second.Key, "a process that runs takes the next prompt")

	for _, change := range []func(*agent.LaunchInput){
		func(in *agent.LaunchInput) { in.Model = "sonnet" },
		func(in *agent.LaunchInput) { in.Permissions.Default = permission.Ask },
		func(in *agent.LaunchInput) {
			in.Permissions.Tools = map[string]permission.Policy{"Bash": permission.Deny}
		},
		func(in *agent.LaunchInput) { in.SessionID = "ses_0193a5f07c7e7b3e8f0a1b2c3d4e5f61" },
	} {
		other := in
		change(&other)
		launch, err := claude.New().Launch(other)
		require.NoError(t, err)
		require.NotEqual(t, first.Key, launch.Key)
	}
}

func TestLaunchRejectsInvalidConfiguration(t *testing.T) {
	t.Parallel()
	good := agent.LaunchInput{SessionID: testSession, Home: "/root", Workspace: "/workspace"}
	for message, change := range map[string]func(*agent.LaunchInput){
		"there is no uuid":   func(in *agent.LaunchInput) { in.SessionID = "ses_1" },
		"home and workspace": func(in *agent.LaunchInput) { in.Home = "" },
	} {
		in := good
		change(&in)
		_, err := claude.New().Launch(in)
		require.ErrorContains(t, err, message)
	}
}

func TestPromptHasSameUUIDWheneverItIsDelivered(t *testing.T) {
	t.Parallel()
	a, err := claude.New().Prompt(agent.PromptInput{RunID: "run_1", Content: "a <b> & \u2028 c"})
	require.NoError(t, err)
	b, err := claude.New().Prompt(agent.PromptInput{RunID: "run_1", Content: "a <b> & \u2028 c"})
	require.NoError(t, err)
	require.Equal(t, a, b)
	c, err := claude.New().Prompt(agent.PromptInput{RunID: "run_2", Content: "a <b> & \u2028 c"})
	require.NoError(t, err)
	require.NotEqual(t, uuidOf(t, a), uuidOf(t, c))
	_, err = claude.New().Prompt(agent.PromptInput{Content: "x"})
	require.Error(t, err)
}

func TestAnswersUseAgentFormat(t *testing.T) {
	t.Parallel()
	asked := agent.Question{
		ID: "q1", Kind: agent.Permission, ToolName: "Bash", Input: json.RawMessage(`{"command":"ls"}`),
		Suggestions: json.RawMessage(`[{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"ls"}],"behavior":"allow","destination":"localSettings"},{"type":"setMode","mode":"acceptEdits","destination":"session"}]`),
	}
	inquiry := agent.Question{
		ID: "q2", Kind: agent.Inquiry, ToolName: "AskUserQuestion", Input: json.RawMessage(`{"questions":[{"question":"Which?"}]}`),
		Inquiries: []agent.InquiryItem{{Question: "Which?"}},
	}
	bare := asked
	bare.Suggestions = nil
	for _, c := range []struct {
		q    agent.Question
		a    agent.Answer
		want string
	}{
		{asked, agent.Answer{Decision: agent.DecisionOnce}, `{"behavior":"allow","updatedInput":{"command":"ls"}}`},
		{asked, agent.Answer{Decision: agent.DecisionSession}, `{"behavior":"allow","updatedInput":{"command":"ls"},"updatedPermissions":[{"behavior":"allow","destination":"session","rules":[{"toolName":"Bash","ruleContent":"ls"}],"type":"addRules"}]}`},
		{asked, agent.Answer{Decision: agent.DecisionAlways}, `{"behavior":"allow","updatedInput":{"command":"ls"},"updatedPermissions":[{"behavior":"allow","destination":"localSettings","rules":[{"toolName":"Bash","ruleContent":"ls"}],"type":"addRules"}]}`},
		{bare, agent.Answer{Decision: agent.DecisionSession}, `{"behavior":"allow","updatedInput":{"command":"ls"},"updatedPermissions":[{"behavior":"allow","destination":"session","rules":[{"toolName":"Bash"}],"type":"addRules"}]}`},
		{asked, agent.Answer{Decision: agent.DecisionReject}, `{"behavior":"deny","message":"The user does not allow this."}`},
		{asked, agent.Answer{Decision: agent.DecisionReject, Message: "not now"}, `{"behavior":"deny","message":"not now"}`},
		{inquiry, agent.Answer{Decision: agent.DecisionOnce, Answers: question.TextEach(map[string]string{"Which?": "this"})}, `{"behavior":"allow","updatedInput":{"answers":{"Which?":"this"},"questions":[{"question":"Which?"}]}}`},
	} {
		got, err := claude.New().Answer(c.q, c.a)
		require.NoError(t, err)
		require.JSONEq(t, `{"type":"control_response","response":{"subtype":"success","request_id":"`+c.q.ID+`","response":`+c.want+`}}`, string(got))
		require.Equal(t, byte('\n'), got[len(got)-1])
	}
	for _, c := range []struct {
		q agent.Question
		a agent.Answer
	}{
		{asked, agent.Answer{Decision: "perhaps"}},
		{inquiry, agent.Answer{Decision: agent.DecisionOnce}},
		{inquiry, agent.Answer{Decision: agent.DecisionOnce, Answers: question.TextEach(map[string]string{"What?": "this"})}},
	} {
		_, err := claude.New().Answer(c.q, c.a)
		require.ErrorContains(t, err, c.q.ID)
	}
}
