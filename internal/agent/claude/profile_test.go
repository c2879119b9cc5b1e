package claude_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/program"
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/session"
)

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
		Model:        "claude-haiku-4-5",
		Permissions:  permission.Rules{Tools: map[string]permission.Policy{"WebFetch": permission.Deny}},
	}
	p := startWith(t, spec, map[string][]modelserver.Step{"hello": {{Text: "Hello."}}})
	require.Equal(t, session.OutcomeCompleted, p.turn(t, "/greet you").End.Outcome)
	require.Equal(t, session.OutcomeCompleted, p.turn(t, "{{hello}} again").End.Outcome)
	requests := p.server.Requests()
	last := requests[len(requests)-1]
	sent := p.server.Sent()
	for _, marker := range []string{"marker-instructions", "marker-skill", "marker-subagent", "marker-command you", "mcp__demo__echo"} {
		require.Contains(t, sent, marker)
	}
	require.NotContains(t, sent, "WebFetch\\n", "it is denied by name; WebSearch is in the same list")
	require.Contains(t, sent, "WebSearch\\n")
	require.Contains(t, last.Tools, "Bash")
}

func TestProfileIsWrittenOutsideOfWorkspace(t *testing.T) {
	t.Parallel()
	files, err := claude.New().ProfileFiles(agent.LaunchInput{
		Home: "/root", Workspace: "/workspace",
		Profile: &profile.Spec{
			Instructions: "x", Skills: []profile.Text{{Name: "a", Content: "y"}},
			MCPServers: []profile.MCPServer{{Name: "web", URL: "https://example.com/mcp", Headers: map[string]string{"A": "b"}}},
		},
	})
	require.NoError(t, err)
	var paths []string
	for _, f := range files {
		paths = append(paths, f.Path)
	}
	require.Equal(t, []string{"/root/.claude/CLAUDE.md", "/root/.claude/skills/a/SKILL.md", "/root/.claude/overwinter-mcp.json"}, paths)
	require.JSONEq(t, `{"mcpServers":{"web":{"type":"http","url":"https://example.com/mcp","headers":{"A":"b"}}}}`, string(files[2].Data))
	none, err := claude.New().ProfileFiles(agent.LaunchInput{Home: "/root", Workspace: "/workspace"})
	require.NoError(t, err)
	require.Empty(t, none)
}
