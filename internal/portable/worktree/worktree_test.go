package worktree_test

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/portable"
	"github.com/overwinter-dev/overwinter/internal/portable/worktree"
)

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(content), 0o644))
	}
}

// files returns the files of a directory except git's own, and links with their targets.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Name() == ".git":
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		rel, err := filepath.Rel(dir, name)
		require.NoError(t, err)
		if d.Type()&fs.ModeSymlink != 0 {
			out[rel], err = os.Readlink(name)
			out[rel] = "-> " + out[rel]
			return err
		}
		data, err := os.ReadFile(name)
		out[rel] = string(data)
		return err
	}))
	return out
}

// move packs a directory and unpacks it into another one.
func move(t *testing.T, dir string) (string, portable.Manifest) {
	t.Helper()
	var out bytes.Buffer
	w := portable.NewWriter(&out)
	m := portable.Manifest{}
	require.NoError(t, worktree.Pack(t.Context(), w, &m, dir, t.TempDir()))
	require.NoError(t, w.Close(m))
	s, err := worktree.Stage(&out, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Remove()) })
	to := t.TempDir()
	require.NoError(t, s.Files(t.Context(), to))
	return to, s.Manifest
}

func TestRepositoryMovesWithItsHistoryAndItsChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	git(t, dir, "init", "--quiet", "--initial-branch", "work/one")
	git(t, dir, "remote", "add", "origin", "https://ada:secret@example.com/a.git")
	write(t, dir, map[string]string{"kept": "1", "changed": "1", "deleted": "1", "becomes/dir": "1", ".gitignore": "ignored/\n*.log\n"})
	git(t, dir, "add", ".")
	git(t, dir, "commit", "--quiet", "-m", "first")
	git(t, dir, "tag", "v1")
	git(t, dir, "branch", "other")
	write(t, dir, map[string]string{"changed": "2", "new/file": "x", "ignored/secret": "x", "a.log": "x", "ümlaut file": "y"})
	require.NoError(t, os.Remove(filepath.Join(dir, "deleted")))
	require.NoError(t, os.Chmod(filepath.Join(dir, "kept"), 0o755))
	require.NoError(t, os.Symlink("kept", filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "outside")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".git/hooks/post-checkout"), []byte("#!/bin/sh\ntouch /tmp/hooked\n"), 0o755))

	to, m := move(t, dir)
	want := files(t, dir)
	maps.DeleteFunc(want, func(name, _ string) bool { return name == "ignored/secret" || name == "a.log" || name == "outside" })
	require.Equal(t, want, files(t, to))
	require.Equal(t, git(t, dir, "rev-parse", "HEAD"), git(t, to, "rev-parse", "HEAD"))
	require.Equal(t, "work/one", git(t, to, "symbolic-ref", "--short", "HEAD"))
	require.Equal(t, git(t, dir, "for-each-ref"), git(t, to, "for-each-ref"))
	require.Equal(t, "https://example.com/a.git", git(t, to, "remote", "get-url", "origin"))
	status := strings.ReplaceAll(git(t, dir, "status", "--porcelain"), "?? outside\n", "")
	require.Equal(t, status, git(t, to, "status", "--porcelain"))
	require.NoFileExists(t, filepath.Join(to, ".git/hooks/post-checkout"))
	missing := strings.Join(m.Missing, "\n")
	for _, item := range []string{"ignored/ (ignored by the repository)", "a.log (ignored", "outside (a link that leads out"} {
		require.Contains(t, missing, item)
	}
	require.Len(t, m.Missing, 3)
}

func TestDetachedHeadAndOneWithoutCommitsMove(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	git(t, dir, "init", "--quiet", "--initial-branch", "trunk")
	write(t, dir, map[string]string{"a": "1"})
	to, m := move(t, dir)
	require.Equal(t, files(t, dir), files(t, to))
	require.Equal(t, "trunk", git(t, to, "symbolic-ref", "--short", "HEAD"))
	require.Empty(t, m.Missing)

	git(t, dir, "add", ".")
	git(t, dir, "commit", "--quiet", "-m", "first")
	git(t, dir, "checkout", "--quiet", "--detach")
	write(t, dir, map[string]string{"a": "2"})
	git(t, dir, "commit", "--quiet", "-am", "on no branch")
	write(t, dir, map[string]string{"a": "3"})
	git(t, dir, "add", "a")
	to, m = move(t, dir)
	require.Equal(t, files(t, dir), files(t, to))
	require.Equal(t, git(t, dir, "rev-parse", "HEAD"), git(t, to, "rev-parse", "HEAD"))
	require.Equal(t, []string{"which changes were staged"}, m.Missing)
}

func TestFilesWithoutRepositoryMove(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "1", "b/c": "2", "large": strings.Repeat("x", worktree.MaxFileBytes+1)})
	nested := filepath.Join(dir, "nested")
	require.NoError(t, os.Mkdir(nested, 0o755))
	git(t, nested, "init", "--quiet")
	to, m := move(t, dir)
	require.Equal(t, map[string]string{"a": "1", "b/c": "2"}, files(t, to))
	require.Len(t, m.Missing, 2)
	require.NoDirExists(t, filepath.Join(to, ".git"))
}

func TestShallowCloneMovesWithoutItsHistory(t *testing.T) {
	t.Parallel()
	dir, clone := t.TempDir(), filepath.Join(t.TempDir(), "clone")
	git(t, dir, "init", "--quiet")
	for _, n := range []string{"1", "2"} {
		write(t, dir, map[string]string{"a": n})
		git(t, dir, "add", ".")
		git(t, dir, "commit", "--quiet", "-m", n)
	}
	git(t, ".", "clone", "--quiet", "--depth", "1", "file://"+dir, clone)
	to, m := move(t, clone)
	require.Equal(t, map[string]string{"a": "2"}, files(t, to))
	require.Contains(t, m.Missing, "the history of the repository: it is a shallow clone")
}

// TestLinkInRepositoryIsNotFollowed checks that no entry of the archive is written through a
// link that git has checked out.
func TestLinkInRepositoryIsNotFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	git(t, dir, "init", "--quiet")
	outside := t.TempDir()
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "out")))
	require.NoError(t, os.Symlink(".git/hooks", filepath.Join(dir, "hooks")))
	git(t, dir, "add", ".")
	git(t, dir, "commit", "--quiet", "-m", "links")
	for _, path := range []string{"out/file", "hooks/post-checkout"} {
		var out bytes.Buffer
		w := portable.NewWriter(&out)
		m := portable.Manifest{}
		require.NoError(t, worktree.Pack(t.Context(), w, &m, dir, t.TempDir()))
		require.NoError(t, w.File(path, 0o755, 1, strings.NewReader("x")))
		require.NoError(t, w.Close(m))
		s, err := worktree.Stage(&out, t.TempDir())
		require.NoError(t, err)
		to := t.TempDir()
		require.ErrorContains(t, s.Files(t.Context(), to), "is a link")
		require.NoFileExists(t, filepath.Join(outside, "file"))
		require.NoFileExists(t, filepath.Join(to, ".git/hooks/post-checkout"))
		require.NoError(t, s.Remove())
	}
}

func TestRefusedArchiveLeavesNoFiles(t *testing.T) {
	t.Parallel()
	scratch := t.TempDir()
	_, err := worktree.Stage(strings.NewReader("no archive"), scratch)
	require.Error(t, err)
	list, err := os.ReadDir(scratch)
	require.NoError(t, err)
	require.Empty(t, list)

	var out bytes.Buffer
	w := portable.NewWriter(&out)
	require.NoError(t, w.Close(portable.Manifest{}))
	s, err := worktree.Stage(&out, scratch)
	require.NoError(t, err)
	to := t.TempDir()
	write(t, to, map[string]string{"mine": "1"})
	require.ErrorContains(t, s.Files(t.Context(), to), "is not empty")
	require.Equal(t, map[string]string{"mine": "1"}, files(t, to))
	require.NoError(t, s.Remove())
}

func TestAgentFilesAreWrittenToTheirDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{"log": "{}"})
	var out bytes.Buffer
	w := portable.NewWriter(&out)
	m := portable.Manifest{}
	require.NoError(t, worktree.PackAgentFiles(w, &m, []string{filepath.Join(dir, "log"), filepath.Join(dir, "gone")}))
	require.NoError(t, w.Close(m))
	require.Len(t, m.Missing, 1)
	s, err := worktree.Stage(&out, t.TempDir())
	require.NoError(t, err)
	to := t.TempDir()
	require.NoError(t, s.AgentFiles(func(path string) string {
		require.Equal(t, filepath.Join(dir, "log"), path)
		return filepath.Join(to, "a/b/log")
	}))
	require.Equal(t, map[string]string{"a/b/log": "{}"}, files(t, to))
	require.NoError(t, s.Remove())
}
