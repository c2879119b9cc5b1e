package agenttest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
)

// Machine returns a user's machine with a home that contains these files. It has no programs.
func Machine(t testing.TB, files map[string]string) agent.Machine {
	t.Helper()
	m := agent.Machine{
		Home: t.TempDir(), Getenv: func(string) string { return "" }, Sandbox: agent.Place{Home: "/root", Workspace: "/workspace"},
		Run: func(context.Context, string, string, ...string) ([]byte, error) { return nil, errors.New("no program") },
	}
	for name, content := range files {
		name = filepath.Join(m.Home, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	}
	return m
}
