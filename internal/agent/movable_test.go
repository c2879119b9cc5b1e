package agent_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

func TestFilesOfSessionAreWrittenTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	taken := filepath.Join(dir, "taken")
	require.NoError(t, os.WriteFile(taken, []byte("mine"), 0o600))
	fresh := filepath.Join(dir, "a", "fresh")
	err := agent.WriteLocal([]transcript.File{{Path: fresh, Data: []byte("1")}, {Path: taken, Data: []byte("2")}})
	require.ErrorContains(t, err, "exists already")
	require.NoFileExists(t, fresh)
	data, err := os.ReadFile(taken)
	require.NoError(t, err)
	require.Equal(t, "mine", string(data))
	require.NoError(t, agent.WriteLocal([]transcript.File{{Path: fresh, Data: []byte("1")}}))
	files, err := agent.ReadLocal([]string{fresh})
	require.NoError(t, err)
	require.Equal(t, []transcript.File{{Path: fresh, Data: []byte("1")}}, files)
}

func TestOversizedSessionIsNotRead(t *testing.T) {
	t.Parallel()
	large := filepath.Join(t.TempDir(), "large")
	require.NoError(t, os.WriteFile(large, nil, 0o600))
	require.NoError(t, os.Truncate(large, transcript.MaxRevertBytes+1))
	_, err := agent.ReadLocal([]string{large})
	require.ErrorContains(t, err, "too much to be moved")
	_, err = agent.ReadLocal([]string{t.TempDir()})
	require.Error(t, err)
}

func TestPartialLineIsNotMoved(t *testing.T) {
	t.Parallel()
	require.Equal(t, "{}\n", string(agent.WholeLines([]byte("{}\n{\"a"))))
	require.Empty(t, agent.WholeLines([]byte("{\"a")))
}
