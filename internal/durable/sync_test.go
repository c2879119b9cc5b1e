package durable_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/durable"
)

func TestSyncTakesFilesAndDirectories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o400))
	require.NoError(t, durable.Sync(file))
	require.NoError(t, durable.Sync(dir))
	require.ErrorIs(t, durable.Sync(filepath.Join(dir, "none")), fs.ErrNotExist)
	require.ErrorContains(t, durable.Sync("/proc/self/status"), "sync /proc/self/status: ", "a failed sync is reported")
}
