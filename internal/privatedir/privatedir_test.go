package privatedir_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/privatedir"
)

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Mode().Perm()
}

func TestDirectoryIsCreatedPrivate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	require.NoError(t, privatedir.Make(dir, 0o700))
	require.Equal(t, fs.FileMode(0o700), mode(t, dir))

	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, privatedir.Make(dir, 0o711))
	require.Equal(t, fs.FileMode(0o711), mode(t, dir))
	require.NoError(t, privatedir.Make(dir, 0o700))
	require.Equal(t, fs.FileMode(0o700), mode(t, dir))

	require.NoError(t, os.Chmod(dir, 0o500))
	require.NoError(t, privatedir.Make(dir, 0o700))
	require.Equal(t, fs.FileMode(0o500), mode(t, dir), "permissions are only ever removed")
}

func TestDirectoryOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(dir, 65534, 65534))
	} else {
		dir = "/"
	}
	require.ErrorContains(t, privatedir.Make(dir, 0o700), "belongs to another user")
}
