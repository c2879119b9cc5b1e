package codex_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/codex"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/question"
)

func TestLaunchStartsBridge(t *testing.T) {
	t.Parallel()
	in := agent.LaunchInput{SessionID: "ses_1", Home: "/root", Workspace: "/workspace", Model: "gpt-5.5"}
	first, err := codex.New().Launch(in)
	require.NoError(t, err)
	require.Equal(t, []string{"/overwinter/bin/overwinter-runner", "codex-bridge", "--program", codex.Binary, "--session", "ses_1", "--model", "gpt-5.5"}, first.Argv)
	require.Equal(t, "/root/.codex", first.Env["CODEX_HOME"])
	require.Equal(t, []string{"/root/.codex/sessions/*/*/*/rollout-*.jsonl", "/root/.codex/overwinter/ses_1.jsonl"}, first.Transcripts)
	require.Equal(t, []string{"OPENAI_API_KEY", "OPENAI_BASE_URL"}, first.Secrets)

	in.Resume = true
	second, err := codex.New().Launch(in)
	require.NoError(t, err)
	require.Contains(t, second.Argv, "--resume")
	require.Equal(t, first.Key, second.Key, "a process that runs takes the next prompt")

	for _, change := range []func(*agent.LaunchInput){
		func(in *agent.LaunchInput) { in.Model = "gpt-6-sol" },
		func(in *agent.LaunchInput) { in.Permissions.Default = permission.Ask },
		func(in *agent.LaunchInput) {
			in.Permissions.Tools = map[string]permission.Policy{"exec_command": permission.Deny}
		},
		func(in *agent.LaunchInput) { in.SessionID = "ses_2" },
		func(in *agent.LaunchInput) { in.Profile = &profile.Spec{Instructions: "x"} },
	} {
		other := in
		change(&other)
		launch, err := codex.New().Launch(other)
		require.NoError(t, err)
		require.NotEqual(t, first.Key, launch.Key)
	}
	in.Model, in.Profile = "", &profile.Spec{Model: "gpt-6-sol", Environment: map[string]string{"A": "b", "HOME": "/elsewhere"}}
	third, err := codex.New().Launch(in)
	require.NoError(t, err)
	require.Subset(t, third.Argv, []string{"--model", "gpt-6-sol"})
	require.Equal(t, "b", third.Env["A"])
	require.Equal(t, "/root", third.Env["HOME"], "a profile does not move the agent's home")
}

func TestLaunchRejectsInvalidConfiguration(t *testing.T) {
	t.Parallel()
	good := agent.LaunchInput{SessionID: "ses_1", Home: "/root", Workspace: "/workspace"}
	for message, change := range map[string]func(*agent.LaunchInput){
		"cannot name":        func(in *agent.LaunchInput) { in.SessionID = "../x" },
		"home and workspace": func(in *agent.LaunchInput) { in.Home = "" },
	} {
		in := good
		change(&in)
		_, err := codex.New().Launch(in)
		require.ErrorContains(t, err, message)
	}
	_, err := codex.New().Prompt(agent.PromptInput{Content: "x"})
	require.ErrorContains(t, err, "no run id")
}

func TestAnswersMustFitTheirQuestion(t *testing.T) {
	t.Parallel()
	command := agent.Question{ID: "t/0", Kind: agent.Permission, ToolName: "exec_command", Suggestions: []byte(`["touch"]`)}
	asked := agent.Question{ID: "t/1", Kind: agent.Inquiry, ToolName: "request_user_input", Input: []byte(`{"questions":[{"id":"q","question":"Which?"}]}`)}
	server := agent.Question{ID: "t/2", Kind: agent.Permission, ToolName: "mcp__demo__echo"}
	more := agent.Question{ID: "t/3", Kind: agent.Permission, ToolName: "request_permissions", Suggestions: []byte(`{"network":{"enabled":true}}`)}
	for _, c := range []struct {
		q    agent.Question
		a    agent.Answer
		want string
	}{
		{command, agent.Answer{Decision: agent.DecisionOnce}, `{"decision":"accept"}`},
		{command, agent.Answer{Decision: agent.DecisionSession}, `{"decision":"acceptForSession"}`},
		{command, agent.Answer{Decision: agent.DecisionAlways}, `{"decision":{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["touch"]}}}`},
		{command, agent.Answer{Decision: agent.DecisionReject}, `{"decision":"decline"}`},
		{asked, agent.Answer{Decision: agent.DecisionOnce, Answers: question.TextEach(map[string]string{"Which?": "That"})}, `{"answers":{"q":{"answers":["That"]}}}`},
		{asked, agent.Answer{Decision: agent.DecisionReject}, `{"answers":{}}`},
		{server, agent.Answer{Decision: agent.DecisionSession}, `{"action":"accept","content":{},"_meta":{"persist":"session"}}`},
		{server, agent.Answer{Decision: agent.DecisionReject}, `{"action":"decline","content":{}}`},
		{more, agent.Answer{Decision: agent.DecisionOnce}, `{"permissions":{"network":{"enabled":true}},"scope":"turn"}`},
		{more, agent.Answer{Decision: agent.DecisionReject}, `{"permissions":{},"scope":"turn"}`},
	} {
		line, err := codex.New().Answer(c.q, c.a)
		require.NoError(t, err)
		require.JSONEq(t, `{"type":"answer","id":"`+c.q.ID+`","data":`+c.want+`}`, string(line))
	}
	_, err := codex.New().Answer(asked, agent.Answer{Decision: agent.DecisionOnce})
	require.ErrorContains(t, err, `there is no answer to "Which?"`)
	_, err = codex.New().Answer(command, agent.Answer{Decision: "maybe"})
	require.ErrorContains(t, err, "no decision")
}
