package follow

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExpandFindsRegularFiles(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, name := range []string{"p/a.jsonl", "p/s/b.jsonl", "p/s/sub/c.jsonl", "p/s/sub/c.txt", "q/s/d.jsonl", "top.jsonl"} {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o644))
	}
	require.NoError(t, os.Mkdir(filepath.Join(root, "p", "dir.jsonl"), 0o755))
	require.NoError(t, os.Symlink(filepath.Join(root, "nowhere"), filepath.Join(root, "p", "dead.jsonl")))
	cases := map[string][]string{
		"top.jsonl":       {"top.jsonl"},
		"*/*.jsonl":       {"p/a.jsonl"},
		"p/**/*.jsonl":    {"p/a.jsonl", "p/s/b.jsonl", "p/s/sub/c.jsonl"},
		"*/s/**":          {"p/s/b.jsonl", "p/s/sub/c.jsonl", "p/s/sub/c.txt", "q/s/d.jsonl"},
		"**/sub/*.jsonl":  {"p/s/sub/c.jsonl"},
		"**/s/**/*.jsonl": {"p/s/b.jsonl", "p/s/sub/c.jsonl", "q/s/d.jsonl"},
		"[":               nil,
		"none/**":         nil,
	}
	for pattern, want := range cases {
		var got []string
		for _, path := range Expand([]string{root + "/" + pattern, root + "/" + pattern}) {
			rel, err := filepath.Rel(root, path)
			require.NoError(t, err)
			got = append(got, rel)
		}
		require.Equal(t, want, got, pattern)
	}
	require.Empty(t, Expand([]string{"**", "relative", ""}))
}
