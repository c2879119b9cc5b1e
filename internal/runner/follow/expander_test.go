package follow

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestExpanderReadsDirectoriesThatChanged(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	patterns := []string{filepath.Join(root, "a", "**", "*.jsonl"), filepath.Join(root, "missing", "*.jsonl"), filepath.Join(root, "b", "one.jsonl")}
	// age sets the time at which all directories seem to have changed.
	age := func(by time.Duration) {
		require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				err = os.Chtimes(path, time.Time{}, time.Now().Add(-by))
			}
			return err
		}))
	}
	write := func(path ...string) {
		name := filepath.Join(append([]string{root}, path...)...)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte("x"), 0o600))
	}
	write("a", "x", "1.jsonl")
	write("a", "x", "empty", "other")
	write("b", "other")
	age(time.Hour)
	var e expander
	quiet := func() {
		t.Helper()
		require.Equal(t, Expand(patterns), e.expand(patterns, false))
		before := e.reads
		for range 5 {
			require.Equal(t, Expand(patterns), e.expand(patterns, false))
		}
		require.Equal(t, before, e.reads, "nothing has changed")
		noted := e.notes
		require.Equal(t, Expand(patterns), e.expand(patterns, true))
		require.Equal(t, before+1, e.reads)
		require.Equal(t, noted, e.notes, "unchanged directories are read for their files only")
		require.Equal(t, Expand(patterns), e.expand(patterns, false))
		require.Equal(t, before+1, e.reads)
	}
	quiet()
	for _, change := range []func(){
		func() { write("a", "x", "2.jsonl") },
		func() { write("a", "x", "empty", "3.jsonl") },
		func() { write("a", "new", "deep", "4.jsonl") },
		func() { write("missing", "5.jsonl") },
		func() { write("b", "one.jsonl") },
		func() { require.NoError(t, os.Remove(filepath.Join(root, "a", "x", "1.jsonl"))) },
		func() { require.NoError(t, os.RemoveAll(filepath.Join(root, "missing"))) },
		func() {
			require.NoError(t, os.Rename(filepath.Join(root, "a", "x"), filepath.Join(root, "away")))
			write("a", "x", "6.jsonl")
		},
	} {
		before := len(Expand(patterns))
		change()
		require.NotEqual(t, before, len(Expand(patterns)))
		require.Equal(t, Expand(patterns), e.expand(patterns, false))
		age(-time.Hour)
		reads := e.reads
		e.expand(patterns, false)
		e.expand(patterns, false)
		require.Equal(t, reads+2, e.reads, "a directory has just changed, and may change again with the same time")
		age(time.Hour)
		quiet()
	}
	fewer := patterns[:1]
	require.Equal(t, Expand(fewer), e.expand(fewer, false), "other patterns")
}

func TestExpanderReadsTooManyDirectoriesEachTime(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for i := range maxExpandedDirs + 1 {
		dir := filepath.Join(root, fmt.Sprint(i))
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Chtimes(dir, time.Time{}, time.Now().Add(-time.Hour)))
	}
	require.NoError(t, os.Chtimes(root, time.Time{}, time.Now().Add(-time.Hour)))
	var e expander
	for i := range 3 {
		e.expand([]string{filepath.Join(root, "*", "*.jsonl")}, false)
		require.Equal(t, i+1, e.reads)
	}
	require.LessOrEqual(t, len(e.dirs), maxExpandedDirs)
}

// TestFlushFindsUnreportedFile checks a file system whose directories do not show their changes.
func TestFlushFindsUnreportedFile(t *testing.T) {
	t.Parallel()
	root, at := t.TempDir(), time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(root, time.Time{}, at))
	patterns := []string{filepath.Join(root, "*", "*.jsonl")}
	var e expander
	require.Empty(t, e.expand(patterns, false))
	dir := filepath.Join(root, "new")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "1.jsonl"), []byte("x"), 0o600))
	require.NoError(t, os.Chtimes(dir, time.Time{}, at))
	require.NoError(t, os.Chtimes(root, time.Time{}, at))
	require.Empty(t, e.expand(patterns, false), "the directory looks unchanged")
	require.Len(t, e.expand(patterns, true), 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "2.jsonl"), []byte("x"), 0o600))
	require.Len(t, e.expand(patterns, false), 2, "the flush has noted the new directory")
}

// TestExpanderReadsForItselfWhileItIsUsed checks that a link does not wait for the previous one.
func TestExpanderReadsForItselfWhileItIsUsed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "1.jsonl"), []byte("x"), 0o600))
	var e expander
	e.mu.Lock()
	defer e.mu.Unlock()
	require.Len(t, e.expand([]string{filepath.Join(root, "*.jsonl")}, false), 1)
}

// TestExpanderReadsDirectoriesWithLinksEachTime: a directory does not change when the target of a
// link in it appears.
func TestExpanderReadsDirectoriesWithLinksEachTime(t *testing.T) {
	t.Parallel()
	root, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
	require.NoError(t, os.Symlink(target, filepath.Join(root, "link.jsonl")))
	require.NoError(t, os.Chtimes(root, time.Time{}, time.Now().Add(-time.Hour)))
	patterns := []string{filepath.Join(root, "*.jsonl")}
	var e expander
	require.Empty(t, e.expand(patterns, false))
	require.NoError(t, os.WriteFile(target, []byte("x"), 0o600))
	require.Len(t, e.expand(patterns, false), 1)
}
