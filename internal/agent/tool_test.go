package agent_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/catalog"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// TestToolCallsAreNormalizedForAllAgents compares the same calls by each agent, as the agents print
// them.
func TestToolCallsAreNormalizedForAllAgents(t *testing.T) {
	t.Parallel()
	read := conversation.Tool{Kind: conversation.ToolRead, Title: "Read /w/a.go", Locations: []conversation.Location{{Path: "/w/a.go", Line: 7}}}
	edit := conversation.Tool{
		Kind: conversation.ToolEdit, Title: "Edit /w/a.go", Locations: []conversation.Location{{Path: "/w/a.go"}},
		Diff: []conversation.FileDiff{{Path: "/w/a.go", OldText: "b", NewText: "c"}},
	}
	write := conversation.Tool{
		Kind: conversation.ToolEdit, Title: "Edit /w/a.go", Locations: []conversation.Location{{Path: "/w/a.go"}},
		Diff: []conversation.FileDiff{{Path: "/w/a.go", NewText: "c"}},
	}
	run := conversation.Tool{Kind: conversation.ToolExecute, Title: "go test ./..."}
	search := conversation.Tool{Kind: conversation.ToolSearch, Title: "Search needle", Locations: []conversation.Location{{Path: "/w"}}}
	for _, c := range []struct {
		agent, name, input string
		want               conversation.Tool
	}{
		{"claude-sdk", "Read", `{"file_path":"/w/a.go","offset":7}`, read},
		{"opencode", "read", `{"filePath":"/w/a.go","offset":7}`, read},
		{"gemini-cli", "read_file", `{"file_path":"/w/a.go","start_line":7}`, read},
		{"claude-sdk", "Edit", `{"file_path":"/w/a.go","old_string":"b","new_string":"c"}`, edit},
		{"claude-sdk", "MultiEdit", `{"file_path":"/w/a.go","edits":[{"old_string":"b","new_string":"c"}]}`, edit},
		{"opencode", "edit", `{"filePath":"/w/a.go","oldString":"b","newString":"c"}`, edit},
		{"gemini-cli", "replace", `{"file_path":"/w/a.go","old_string":"b","new_string":"c"}`, edit},
		{"claude-sdk", "Write", `{"file_path":"/w/a.go","content":"c"}`, write},
		{"opencode", "write", `{"filePath":"/w/a.go","content":"c"}`, write},
		{"gemini-cli", "write_file", `{"file_path":"/w/a.go","content":"c"}`, write},
		{"demo", "write", `{"file":"/w/a.go","text":"c"}`, write},
		{"claude-sdk", "Bash", `{"command":"go test ./...","description":"Test"}`, run},
		{"codex", "exec_command", `{"command":"go test ./...","cwd":"/w"}`, run},
		{"opencode", "bash", `{"command":"go test ./..."}`, run},
		{"gemini-cli", "run_shell_command", `{"command":"go test ./..."}`, run},
		{"demo", "shell", `{"command":"go test ./..."}`, run},
		{"acp", "execute", `{"title":"go test ./..."}`, run},
		{"claude-sdk", "Grep", `{"pattern":"needle","path":"/w"}`, search},
		{"opencode", "grep", `{"pattern":"needle","path":"/w"}`, search},
		{"gemini-cli", "grep_search", `{"pattern":"needle","dir_path":"/w"}`, search},
		{"claude-sdk", "WebFetch", `{"url":"https://example.com"}`, conversation.Tool{Kind: conversation.ToolFetch, Title: "Fetch https://example.com"}},
		{"opencode", "todowrite", `{"todos":[]}`, conversation.Tool{Kind: conversation.ToolThink, Title: "todowrite"}},
		{"opencode", "apply_patch", `{"patchText":"*** Begin Patch"}`, conversation.Tool{
			Kind: conversation.ToolEdit, Title: "apply_patch", Diff: []conversation.FileDiff{{Patch: "*** Begin Patch"}},
		}},
		{"codex", "apply_patch", `{"changes":[{"path":"/w/a.go","kind":"update","diff":"@@ -1 +1 @@"},{"path":"/w/b.go","kind":"add","diff":"new"}]}`, conversation.Tool{
			Kind: conversation.ToolEdit, Title: "Edit a.go", Locations: []conversation.Location{{Path: "/w/a.go"}, {Path: "/w/b.go"}},
			Diff: []conversation.FileDiff{{Path: "/w/a.go", Patch: "@@ -1 +1 @@"}, {Path: "/w/b.go", NewText: "new"}},
		}},
		{"acp", "edit", `{"title":"Writing to a.go","locations":[{"path":"/w/a.go","line":3}]}`, conversation.Tool{
			Kind: conversation.ToolEdit, Title: "Writing to a.go", Locations: []conversation.Location{{Path: "/w/a.go", Line: 3}},
		}},
		{"claude-sdk", "mcp__tickets__find", `{"query":"open"}`, conversation.Tool{Kind: conversation.ToolOther, Title: "mcp__tickets__find: open"}},
		{"codex", "unheard_of", `7`, conversation.Tool{Kind: conversation.ToolOther, Title: "unheard_of"}},
		{"codex", "exec_command", ``, conversation.Tool{Kind: conversation.ToolExecute, Title: "exec_command"}},
	} {
		adapter, err := catalog.Agents().Get(c.agent)
		require.NoError(t, err)
		viewer, ok := adapter.(agent.Viewer)
		require.True(t, ok, c.agent)
		require.Equal(t, c.want, viewer.Tool(c.name, json.RawMessage(c.input)), "%s %s", c.agent, c.name)
	}
}

func TestCallDescriptionIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	input, err := json.Marshal(map[string]any{"file_path": long, "old_string": long, "new_string": "c"})
	require.NoError(t, err)
	claude, err := catalog.Agents().Get("claude-sdk")
	require.NoError(t, err)
	v := claude.(agent.Viewer).Tool("Edit", input).Bounded()
	require.Len(t, v.Title, conversation.MaxToolTitleBytes)
	require.Len(t, v.Locations[0].Path, conversation.MaxToolPathBytes)
	require.Len(t, v.Diff[0].OldText, conversation.MaxToolDiffTextBytes)
	require.Empty(t, v.Diff[0].NewText)
	require.True(t, v.Diff[0].Truncated)
}
