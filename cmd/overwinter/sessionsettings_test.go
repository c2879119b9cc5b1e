package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/portable"
	"github.com/overwinter-dev/overwinter/internal/portable/worktree"
)

// TestSettingsOfAgentsAreNotPulled checks that settings written in a sandbox do not extend an
// agent's permissions on the user's machine.
func TestSettingsOfAgentsAreNotPulled(t *testing.T) {
	t.Parallel()
	agents, err := localAgents()
	require.NoError(t, err)
	left := []string{
		".claude/settings.local.json", ".Claude/Settings.json", ".mcp.json", ".codex/config.toml", ".codex/rules/default.rules",
		"opencode.json", ".opencode/plugin/x.js", ".gemini/settings.json", ".gemini/policies/a/b.toml",
	}
	kept := []string{"main.go", "src/.claude/settings.json", ".claude/commands/x.md", ".codex/AGENTS.md", ".env"}
	staged := &worktree.Staged{Manifest: portable.Manifest{Deleted: []string{".claude/settings.json", "gone.go"}}}
	for _, name := range append(left, kept...) {
		staged.Entries = append(staged.Entries, portable.Entry{Name: "workspace/" + name})
	}
	for name, link := range map[string]string{".claude": "x", ".opencode/plugin": "../x", "y": "x"} {
		staged.Entries = append(staged.Entries, portable.Entry{Name: "workspace/" + name, Link: link})
	}
	leaveSettings(staged, agents)
	var names []string
	for _, e := range staged.Entries {
		name, _ := e.WorkspacePath()
		names = append(names, name)
	}
	require.ElementsMatch(t, append(kept, "y"), names)
	require.Equal(t, []string{"gone.go"}, staged.Deleted)
	require.Len(t, staged.Missing, len(left)+3)
	require.Contains(t, staged.Missing, ".claude/settings.local.json (settings of an agent)")

	dir := t.TempDir()
	require.Empty(t, settingsIn(dir, agents))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".codex/rules"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".codex/rules/a.rules"), nil, 0o600))
	require.Equal(t, []string{".codex/rules/a.rules"}, settingsIn(dir, agents))
}
