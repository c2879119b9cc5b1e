package durable_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/durable"
)

func TestFileIsReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, durable.WriteFile(path, []byte("one, and longer")))
	require.NoError(t, durable.WriteFile(path, []byte("two")))
	requireFile(t, path, "two")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())
}

func TestFailedWriteChangesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, durable.WriteFile(path, []byte("before")))
	broken := errors.New("broken")
	require.ErrorIs(t, durable.Replace(path, func(w io.Writer) error {
		_, err := w.Write([]byte("half"))
		return errors.Join(err, broken)
	}), broken)
	requireFile(t, path, "before")

	dir := filepath.Join(t.TempDir(), "dir")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "full"), 0o700))
	require.Error(t, durable.WriteFile(dir, []byte("a file cannot replace it")))
	require.DirExists(t, filepath.Join(dir, "full"))
	entries, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// requireFile requires a file with that content, and no other file in its directory.
func requireFile(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing is left of the write")
}
