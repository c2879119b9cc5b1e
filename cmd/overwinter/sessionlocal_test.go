package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLocalSessionsAreFound runs without any agent's program in PATH.
func TestLocalSessionsAreFound(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("PATH", home)
	for _, name := range []string{"CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME"} {
		t.Setenv(name, "")
	}
	var stderr bytes.Buffer
	s := streams{stderr: &stderr}
	_, err := findLocal(t.Context(), s, "/home/ada/a", "", "")
	require.ErrorContains(t, err, "/home/ada/a has no session of Claude Code (looked in "+home+"/.claude/projects/-home-ada-a/*.jsonl), nor of Codex (looked in ")
	require.NotContains(t, err.Error(), "OpenCode", "the machine does not have it")
	_, err = findLocal(t.Context(), s, home, "opencode", "")
	require.ErrorContains(t, err, "executable file not found")

	const older, newer = "0196f1a0-1111-4222-8333-444455556666", "0196f1a0-1111-4222-8333-444455556667"
	for n, id := range []string{older, newer} {
		name := filepath.Join(home, ".claude/projects/-home-ada-a", id+".jsonl")
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte("{}\n"), 0o600))
		at := time.Date(2026, 1, 1, n, 0, 0, 0, time.UTC)
		require.NoError(t, os.Chtimes(name, at, at))
	}
	found, err := findLocal(t.Context(), s, "/home/ada/a", "", "")
	require.NoError(t, err)
	require.Equal(t, newer, found.ID)
	require.Equal(t, "claude-sdk", found.agent.name)
	require.Contains(t, stderr.String(), "has 2 sessions")
	found, err = findLocal(t.Context(), s, "/home/ada/a", "claude", older)
	require.NoError(t, err)
	require.Equal(t, older, found.ID)
	_, err = findLocal(t.Context(), s, "/home/ada/a", "claude", "other")
	require.ErrorContains(t, err, "has no session other of Claude Code")
}

func TestPushRefusesAgentsWithoutMovableSessions(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"claude", "claude-sdk", "codex", "opencode", "gemini", "gemini-cli"} {
		_, err := localAgentOf(name)
		require.NoError(t, err, name)
	}
	for _, name := range []string{"acp", "demo"} {
		_, err := localAgentOf(name)
		require.ErrorContains(t, err, "sessions of "+name+" cannot be moved: overwinter does not know where the agent's program stores them")
	}
	_, err := localAgentOf("other")
	require.ErrorContains(t, err, `there is no agent "other"; sessions of these agents can be moved: claude, codex, opencode, gemini`)
}
