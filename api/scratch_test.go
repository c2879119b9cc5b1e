package api

import (
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScratchFileLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	f, err := scratchFile()
	require.NoError(t, err)
	_, err = f.WriteString("conversation")
	require.NoError(t, err)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "the process may be killed at any time")
	_, err = f.Seek(0, io.SeekStart)
	require.NoError(t, err)
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, "conversation", string(text))
	require.NoError(t, f.Close())
}
