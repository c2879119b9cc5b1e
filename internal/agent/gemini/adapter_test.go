package gemini_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/profile"
)

func TestLaunchStartsBridgeWithProgram(t *testing.T) {
	t.Parallel()
	in := agent.LaunchInput{SessionID: "ses_1", Home: "/root", Workspace: "/workspace"}
	first, err := gemini.New().Launch(in)
	require.NoError(t, err)
	require.Equal(t, []string{
		"/overwinter/bin/overwinter-runner", "gemini-bridge", "--session", "ses_1", "--allow", "--",
		"node", gemini.Program, "--acp", "--model", gemini.DefaultModel, "--approval-mode", "yolo",
	}, first.Argv)
	require.Equal(t, []string{"/root/.gemini/overwinter/ses_1.jsonl"}, first.Transcripts)
	require.Equal(t, "true", first.Env["GEMINI_CLI_NO_RELAUNCH"])
	require.Contains(t, first.Secrets, "GEMINI_API_KEY")

	in.Resume = true
	second, err := gemini.New().Launch(in)
	require.NoError(t, err)
	require.Equal(t, first, second, "a process that runs takes the next prompt")

	in.Permissions.Tools = map[string]permission.Policy{"write_file": permission.Deny}
	denying, err := gemini.New().Launch(in)
	require.NoError(t, err)
	require.Equal(t, first.Argv, denying.Argv, "denied tools raise no question")
	require.Contains(t, denying.Env["OVERWINTER_GEMINI_SETTINGS"], `"exclude":["write_file"]`)

	in.Permissions.Default = permission.Ask
	in.Model = "gemini-3.8-flash"
	in.Profile = &profile.Spec{
		Model: "gemini-2.5-pro", Environment: map[string]string{"A": "b", "HOME": "/elsewhere"},
		MCPServers: []profile.MCPServer{{Name: "web", URL: "https://mcp.example", Headers: map[string]string{"X": "y"}}},
	}
	asking, err := gemini.New().Launch(in)
	require.NoError(t, err)
	require.False(t, slices.Contains(asking.Argv, "--allow"))
	require.Equal(t, "default", asking.Argv[len(asking.Argv)-1])
	require.Contains(t, asking.Argv, "gemini-3.8-flash", "the session's model counts before the profile's")
	require.Equal(t, "b", asking.Env["A"])
	require.Equal(t, "/root", asking.Env["HOME"])
	var settings struct {
		Tools struct {
			Exclude []string `json:"exclude"`
		} `json:"tools"`
		Servers map[string]map[string]any `json:"mcpServers"`
	}
	require.NoError(t, json.Unmarshal([]byte(asking.Env["OVERWINTER_GEMINI_SETTINGS"]), &settings))
	require.Equal(t, []string{"write_file"}, settings.Tools.Exclude)
	require.Equal(t, map[string]any{"httpUrl": "https://mcp.example", "headers": map[string]any{"X": "y"}}, settings.Servers["web"])
}

func TestLaunchRejectsInvalidConfiguration(t *testing.T) {
	t.Parallel()
	for message, in := range map[string]agent.LaunchInput{
		"cannot name":        {SessionID: "../x", Home: "/root", Workspace: "/workspace"},
		"home and workspace": {SessionID: "ses_1", Workspace: "/workspace"},
	} {
		_, err := gemini.New().Launch(in)
		require.ErrorContains(t, err, message)
	}
	_, err := gemini.New().Prompt(agent.PromptInput{Content: "x"})
	require.ErrorContains(t, err, "no run id")
}

func TestAnswersAreOptionsOfAgent(t *testing.T) {
	t.Parallel()
	q := agent.Question{ID: "call", Kind: agent.Permission, Suggestions: json.RawMessage(`[
		{"optionId":"proceed_always","kind":"allow_always"},{"optionId":"proceed_always_and_save","kind":"allow_always"},
		{"optionId":"proceed_once","kind":"allow_once"},{"optionId":"cancel","kind":"reject_once"}]`)}
	for decision, want := range map[agent.Decision]string{
		agent.DecisionOnce: "proceed_once", agent.DecisionSession: "proceed_always",
		agent.DecisionAlways: "proceed_always_and_save", agent.DecisionReject: "cancel",
	} {
		line, err := gemini.New().Answer(q, agent.Answer{Decision: decision})
		require.NoError(t, err)
		var c struct {
			ID   string `json:"id"`
			Data struct {
				Option  string `json:"option"`
				Allowed bool   `json:"allowed"`
			} `json:"data"`
		}
		require.NoError(t, json.Unmarshal(line, &c))
		require.Equal(t, "call", c.ID)
		require.Equal(t, want, c.Data.Option)
		require.Equal(t, decision != agent.DecisionReject, c.Data.Allowed)
	}
	_, err := gemini.New().Answer(q, agent.Answer{Decision: "perhaps"})
	require.ErrorContains(t, err, "is not a decision")
	q.Suggestions = json.RawMessage(`[]`)
	_, err = gemini.New().Answer(q, agent.Answer{Decision: agent.DecisionOnce})
	require.ErrorContains(t, err, "does not offer")
	_, err = gemini.New().Answer(q, agent.Answer{Decision: agent.DecisionReject})
	require.NoError(t, err, "a question can be withdrawn")
}
