package acp_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/acp"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/profile"
)

func TestLaunchHandsProfileToBridge(t *testing.T) {
	t.Parallel()
	in := agent.LaunchInput{SessionID: "ses_1", Home: "/root", Workspace: "/workspace", Model: "clever"}
	plain, err := acp.New().Launch(in)
	require.NoError(t, err)
	require.Equal(t, []string{"/overwinter/bin/overwinter-runner", "acp-bridge", "--session", "ses_1", "--allow", "--model", "clever"}, plain.Argv)
	require.Equal(t, []string{"/root/.overwinter/acp/ses_1.jsonl"}, plain.Transcripts)
	require.Equal(t, []string{acp.EnvCommand}, plain.Secrets, "keys are given only where a profile names them")

	in.Permissions.Default = permission.Ask
	in.Profile = &profile.Spec{
		Instructions: "Be kind.",
		Environment:  map[string]string{acp.EnvCommand: "opencode acp", acp.EnvTranscripts: ".local/share/opencode/*:../../etc/*"},
		MCPServers: []profile.MCPServer{
			{Name: "a", Command: "a", Environment: map[string]string{"X": "y"}},
			{Name: "b", URL: "https://mcp.example", Headers: map[string]string{"K": "v"}},
		},
	}
	got, err := acp.New().Launch(in)
	require.NoError(t, err)
	require.False(t, slices.Contains(got.Argv, "--allow"))
	require.Equal(t, "opencode acp", got.Env[acp.EnvCommand])
	require.Empty(t, got.Secrets, "a secret would be put over it")
	require.Equal(t, []string{"/root/.overwinter/acp/ses_1.jsonl", "/root/.local/share/opencode/*", "/root/etc/*"}, got.Transcripts)
	var servers []map[string]any
	require.NoError(t, json.Unmarshal([]byte(got.Env["OVERWINTER_ACP_SERVERS"]), &servers))
	require.Equal(t, []map[string]any{
		{"name": "a", "command": "a", "args": []any{}, "env": []any{map[string]any{"name": "X", "value": "y"}}},
		{"name": "b", "type": "http", "url": "https://mcp.example", "headers": []any{map[string]any{"name": "K", "value": "v"}}},
	}, servers)

	in.Profile.Environment[acp.EnvTranscripts] = "[" // not a valid pattern
	_, err = acp.New().Launch(in)
	require.ErrorContains(t, err, acp.EnvTranscripts)
	_, err = acp.New().Launch(agent.LaunchInput{SessionID: "../x", Home: "/root", Workspace: "/workspace"})
	require.ErrorContains(t, err, "cannot name")
}
