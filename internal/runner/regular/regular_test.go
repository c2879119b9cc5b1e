package regular_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/runner/regular"
)

func TestReadsRegularFilesOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, pipe, link, written := filepath.Join(dir, "file"), filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "written")
	require.NoError(t, os.WriteFile(file, []byte("12345"), 0o600))
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	require.NoError(t, unix.Mkfifo(written, 0o600))
	require.NoError(t, os.Symlink(pipe, link))
	writer, err := os.OpenFile(written, os.O_RDWR, 0) // a reader would block until it writes
	require.NoError(t, err)
	defer writer.Close()

	for _, path := range []string{pipe, link, written, dir, "/dev/zero"} {
		_, err := regular.Read(path, 10)
		require.ErrorIs(t, err, regular.ErrNotRegular, path)
	}
	got, err := regular.Read(file, 5)
	require.NoError(t, err)
	require.Equal(t, "12345", string(got))
	_, err = regular.Read(file, 4)
	require.ErrorIs(t, err, regular.ErrTooLarge)
	_, err = regular.Read(filepath.Join(dir, "none"), 4)
	require.ErrorIs(t, err, os.ErrNotExist)
}
