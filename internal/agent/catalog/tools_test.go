package catalog_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/catalog"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/profile"
)

// launched returns everything that an agent is started with as text: its command line, its
// environment and the files of its profile.
func launched(t *testing.T, a agent.Adapter, in agent.LaunchInput) string {
	t.Helper()
	launch, err := a.Launch(in)
	require.NoError(t, err)
	text := strings.Join(launch.Argv, " ") + " " + launch.Key
	for name, value := range launch.Env {
		text += " " + name + "=" + value
	}
	if profiled, ok := a.(agent.Profiled); ok && in.Profile != nil {
		files, err := profiled.ProfileFiles(in)
		require.NoError(t, err)
		for _, f := range files {
			text += " " + f.Path + " " + string(f.Data)
		}
	}
	return text
}

// TestDisabledToolsLeaveNoTrace checks that an agent without overwinter's tools is
// configured with no MCP servers except those of its profile.
func TestDisabledToolsLeaveNoTrace(t *testing.T) {
	t.Parallel()
	tools := []string{"/opt/overwinter/bin/overwinter-runner", "tools"}
	encoded, err := json.Marshal(tools)
	require.NoError(t, err)
	for _, a := range catalog.Agents().All() {
		t.Run(a.Name(), func(t *testing.T) {
			t.Parallel()
			for _, rules := range []permission.Rules{{}, {Default: permission.Ask}} {
				for _, p := range []*profile.Spec{nil, {Instructions: "be brief"}, {MCPServers: []profile.MCPServer{{Name: "another", Command: "serve-another"}}}} {
					in := agent.LaunchInput{SessionID: "ses_0190a0c0a0c070008000000000000001", Home: "/home/user", Workspace: "/workspace", Permissions: rules, Profile: p}
					off := launched(t, a, in)
					for _, left := range []string{stdio.EnvTools, "mcp__overwinter", "set_title", "session_message", `"overwinter"`, string(encoded)} {
						require.NotContains(t, off, left)
					}
					if p == nil || len(p.MCPServers) == 0 {
						require.NotContains(t, strings.ToLower(strings.ReplaceAll(off, `"mcpServers":{}`, "")), "mcp")
					}
					in.Tools = tools
					on := launched(t, a, in)
					require.NotEqual(t, off, on, "it is offered the tools otherwise")
					require.True(t, strings.Contains(on, stdio.EnvTools) || strings.Contains(on, "overwinter-runner"), on)
				}
			}
		})
	}
}
