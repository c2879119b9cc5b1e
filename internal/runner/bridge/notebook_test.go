package bridge_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
)

func TestNotebookGrowsByWholeLines(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "deep", "ses_1.jsonl")
	for _, c := range []struct{ past, written, after string }{
		{"", "a\n", "a\n"},
		{"a\n", "b\nc", "a\nb\nc"}, // killed in the middle of a line
		{"a\nb\nc", "d\n", "a\nb\nc\nd\n"},
	} {
		file, past, err := bridge.OpenNotebook(name)
		require.NoError(t, err)
		require.Equal(t, c.past, string(past))
		_, err = file.WriteString(c.written)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, c.after, string(got))
	}
	_, _, err := bridge.OpenNotebook(filepath.Join(name, "below"))
	require.ErrorContains(t, err, "open the notebook: ")
	info, err := os.Stat(name)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())
}
