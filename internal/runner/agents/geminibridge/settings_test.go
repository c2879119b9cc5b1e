package geminibridge

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
)

func TestSettingsOfLaunchOverrideUsersAndDoNotStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, geminiformat.NotebookDir), 0o700))
	name := filepath.Join(dir, "settings.json")
	requireSettings := func(want string) {
		t.Helper()
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.JSONEq(t, want, string(got))
	}
	require.NoError(t, writeSettings(dir, []byte(`{"a":{"b":1}}`)))
	requireSettings(`{"a":{"b":1}}`)
	require.NoError(t, os.WriteFile(name, []byte(`{"a":{"b":5,"c":2},"u":true}`), 0o600))
	require.NoError(t, writeSettings(dir, []byte(`{"a":{"b":1},"mcpServers":{"x":{}}}`)))
	requireSettings(`{"a":{"b":1,"c":2},"u":true,"mcpServers":{"x":{}}}`)
	require.NoError(t, writeSettings(dir, []byte(`{"a":{"b":3}}`)))
	requireSettings(`{"a":{"b":3,"c":2},"u":true}`)
	require.NoError(t, os.WriteFile(name, []byte(`{broken`), 0o600))
	require.NoError(t, writeSettings(dir, []byte(`{"a":{"b":4}}`)))
	requireSettings(`{"a":{"b":4}}`)
	require.Error(t, writeSettings(dir, []byte(`no object`)))
}
