package command

import (
	"bytes"
	"io"
	"iter"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

func content(pieces ...string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, p := range pieces {
			if !yield([]byte(p), nil) {
				return
			}
		}
	}
}

// messages encodes the stdin of put.
func messages(t *testing.T, list ...runner.Message) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, m := range list {
		require.NoError(t, runner.WriteMessage(&b, m))
	}
	return b.Bytes()
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestPutReplacesFilesWithTheirMode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, deep := filepath.Join(dir, "old"), filepath.Join(dir, "a", "b", "new")
	require.NoError(t, os.WriteFile(old, []byte("before"), 0o644))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(old, link))
	var stdin, stdout bytes.Buffer
	require.NoError(t, runner.WritePut(&stdin, []runner.PutFile{
		{Path: old, Size: 5, Content: content("af", "ter")}, {Path: deep, Size: 0, Content: content()}, {Path: link, Size: 1, Content: content("x")},
	}))
	require.NoError(t, Put(&stdin, &stdout))
	w, err := runner.ParsePut(stdout.Bytes())
	require.NoError(t, err)
	require.Equal(t, runner.Written{Files: 3, Bytes: 6}, w)
	for path, want := range map[string]string{old: "after", deep: "", link: "x"} {
		info, err := os.Lstat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode(), "%s: a link is replaced, not followed", path)
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	info, err := os.Stat(filepath.Join(dir, "a"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.Equal(t, []string{"a", "link", "old"}, names(t, dir))
}

func TestPartialPutKeepsOldFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path  string // in place of the old file's path
		size  int64
		rest  []runner.Message
		error string
	}{
		"cut within a file":      {size: 5, rest: []runner.Message{&runner.Data{Bytes: []byte("aft")}}, error: io.ErrUnexpectedEOF.Error()},
		"cut before a file":      {size: 5, error: io.ErrUnexpectedEOF.Error()},
		"more than was promised": {size: 2, rest: []runner.Message{&runner.Data{Bytes: []byte("after")}}, error: "do not match its size"},
		"an empty piece":         {size: 2, rest: []runner.Message{&runner.Data{}}, error: "do not match its size"},
		"another message":        {size: 2, rest: []runner.Message{&runner.Settle{}}, error: "do not match its size"},
		"a negative size":        {size: -1, error: "or the size negative"},
		"a relative path":        {path: "relative", size: 1, error: "the path is not absolute"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			old := filepath.Join(dir, "old")
			require.NoError(t, os.WriteFile(old, []byte("before"), 0o644))
			path := old
			if c.path != "" {
				path = c.path
			}
			var stdout bytes.Buffer
			err := Put(bytes.NewReader(messages(t, append([]runner.Message{&runner.File{Path: path, Size: c.size}}, c.rest...)...)), &stdout)
			require.ErrorContains(t, err, c.error)
			require.Empty(t, stdout.Bytes())
			got, err := os.ReadFile(old)
			require.NoError(t, err)
			require.Equal(t, "before", string(got))
			require.Equal(t, []string{"old"}, names(t, dir), "nothing temporary is left")
		})
	}
}

func TestPutWithoutItsEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	whole := []runner.Message{&runner.File{Path: path, Size: 1}, &runner.Data{Bytes: []byte("x")}}
	require.ErrorIs(t, Put(bytes.NewReader(messages(t, whole...)), io.Discard), io.ErrUnexpectedEOF)
	require.ErrorContains(t, Put(bytes.NewReader(messages(t, append(whole, &runner.End{Files: 2})...)), io.Discard), "2 files were announced and 1 came")
	require.ErrorContains(t, Put(bytes.NewReader(messages(t, &runner.Settle{})), io.Discard), "put takes no *runner.Settle")
	require.NoError(t, Put(bytes.NewReader(messages(t, append(whole, &runner.End{Files: 1})...)), io.Discard))
}

func TestPutToUnwritableDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o600))
	target := filepath.Join(dir, "directory")
	require.NoError(t, os.MkdirAll(filepath.Join(target, "x"), 0o700))
	for _, path := range []string{filepath.Join(plain, "below"), target} {
		err := Put(bytes.NewReader(messages(t, &runner.File{Path: path, Size: 1}, &runner.Data{Bytes: []byte("x")})), io.Discard)
		require.ErrorContains(t, err, "put "+path+": ")
	}
	require.Equal(t, []string{"directory", "plain"}, names(t, dir))
}
