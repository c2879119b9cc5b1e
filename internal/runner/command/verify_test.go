package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

func TestVerifyComparesAgentsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var files []string
	for _, name := range []string{"same", "longer", "other", "shorter", "gone"} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte("what was sealed"), 0o600))
		files = append(files, path)
	}
	described, err := agentFiles(files)
	require.NoError(t, err)
	require.Len(t, described, 5)
	m := manifest.Manifest{AgentFiles: described}
	for name, text := range map[string]string{"longer": "what was sealed, and more", "other": "what was changed, and more", "shorter": "what"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	require.NoError(t, os.Remove(files[4]))

	stdin, err := json.Marshal(runner.VerifyRequest{Manifest: m, Workspace: dir})
	require.NoError(t, err)
	var stdout bytes.Buffer
	require.NoError(t, Verify(t.Context(), bytes.NewReader(stdin), &stdout))
	v, err := runner.ParseVerify(stdout.Bytes())
	require.NoError(t, err)
	other, err := describe(files[2])
	require.NoError(t, err)
	shorter, err := describe(files[3])
	require.NoError(t, err)
	require.Equal(t, runner.Verification{
		Missing: []string{files[4]}, Mismatched: []string{files[2], files[3]}, Longer: []string{files[1]}, Found: []manifest.File{other, shorter},
	}, v)
}

func TestManifestIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	bad := filepath.Join(dir, "bad\xff")
	require.NoError(t, os.WriteFile(bad, nil, 0o600))
	files := []string{bad, "/" + strings.Repeat("x", transcript.MaxPath)}
	for range transcript.MaxFiles + 1 {
		files = append(files, path)
	}
	described, err := agentFiles(files)
	require.NoError(t, err)
	require.Len(t, described, transcript.MaxFiles)
	require.Equal(t, path, described[0].Path, "paths that no worker stores are left out")

	_, err = agentFiles([]string{filepath.Join(dir, "gone")})
	require.ErrorIs(t, err, os.ErrNotExist)
}
