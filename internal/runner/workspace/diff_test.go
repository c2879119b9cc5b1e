package workspace

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

func (b *bundle) git(args ...string) string {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), "git", append([]string{"-C", b.root, "-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	require.NoError(b.t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

// diff makes a pass, stores the reports, and takes the diff.
func (b *bundle) diff() workspacefile.Diff {
	b.t.Helper()
	b.sync()
	require.NoError(b.t, b.index.Save())
	key := b.index.DiffKey()
	require.Equal(b.t, key, b.index.DiffKey())
	d, err := TakeDiff(b.t.Context(), b.root, b.dir, key)
	require.NoError(b.t, err)
	require.Equal(b.t, key, d.Key)
	require.WithinDuration(b.t, time.Now(), d.At, time.Minute)
	require.NoError(b.t, err)
	entries, err := os.ReadDir(b.dir)
	require.NoError(b.t, err)
	for _, e := range entries {
		require.False(b.t, strings.HasPrefix(e.Name(), "diff-"), "%s is left", e.Name())
	}
	return d
}

func deltas(d workspacefile.Diff) map[string]workspacefile.Delta {
	out := map[string]workspacefile.Delta{}
	for _, f := range d.Files {
		out[f.Path] = f
	}
	return out
}

func TestDiffAgainstInitialFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.write("kept", "same\n")
	b.write("changed", "one\ntwo\nthree\n")
	b.write("gone", "final words")
	b.write("binary", "\x00\x01")
	b.attach()
	b.sync()
	require.Empty(t, b.diff().Files)

	b.write("changed", "one\n2\nthree\nfour\n")
	b.remove("gone")
	b.write("binary", "\x00\x02")
	b.write("dir/new", "hello\n")
	b.write("fleeting", "x")
	b.sync()
	b.remove("fleeting")
	d := b.diff()
	require.Equal(t, map[string]workspacefile.Delta{
		"changed": {Path: "changed", Change: workspacefile.Modified, Additions: 2, Deletions: 1},
		"gone":    {Path: "gone", Change: workspacefile.Deleted, Deletions: 1},
		"binary":  {Path: "binary", Change: workspacefile.Modified, Binary: true},
		"dir/new": {Path: "dir/new", Change: workspacefile.Created, Additions: 1},
	}, deltas(d))
	require.Equal(t, 4, d.FilesChanged)
	require.EqualValues(t, 3, d.Additions)
	require.EqualValues(t, 2, d.Deletions)
	require.Nil(t, d.Git)
	require.Contains(t, string(d.Patch), "--- a/changed\n+++ b/changed\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n three\n+four\n")
	require.Contains(t, string(d.Patch), "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-final words\n\\ No newline at end of file\n")

	b.write("changed", "one\ntwo\nthree\n")
	require.NotContains(t, deltas(b.diff()), "changed", "it is as it was")
	b.index = Open(b.root, b.dir) // a restored disk has the same base
	b.attach()
	require.Equal(t, 3, b.diff().FilesChanged)
}

func TestDiffAgainstCommitAtBeginning(t *testing.T) {
	t.Parallel()
	needGit(t)
	b := setup(t)
	b.git("init", "-q", "-b", "main")
	b.write("a", "one\n")
	b.write("sub/b", "one\n")
	b.write(".gitignore", "ignored\n")
	b.git("add", ".")
	b.git("commit", "-q", "-m", "first")
	first := b.git("rev-parse", "HEAD")
	b.attach()
	b.sync()
	require.Equal(t, first, b.p.Base)
	clean := b.diff()
	require.Empty(t, clean.Files)
	require.Equal(t, &workspacefile.GitState{Branch: "main", Head: first}, clean.Git)

	b.write("a", "one\ntwo\n")
	b.git("checkout", "-q", "-b", "feature/x")
	b.git("commit", "-q", "-am", "second")
	b.remove("sub")
	b.write("new file\t\"quoted\"", "x\n")
	b.write("ignored", "x\n")
	b.write("node_modules/m/index.js", "x\n")
	b.write(".overwinter/attachments/prm_1/notes", "x\n")
	index, err := os.ReadFile(filepath.Join(b.root, ".git", "index"))
	require.NoError(t, err)
	d := b.diff()
	require.Equal(t, map[string]workspacefile.Delta{
		"a":                    {Path: "a", Change: workspacefile.Modified, Additions: 1},
		"sub/b":                {Path: "sub/b", Change: workspacefile.Deleted, Deletions: 1},
		"new file\t\"quoted\"": {Path: "new file\t\"quoted\"", Change: workspacefile.Created, Additions: 1},
	}, deltas(d))
	require.Equal(t, &workspacefile.GitState{Branch: "feature/x", Head: b.git("rev-parse", "HEAD"), Dirty: true}, d.Git)
	require.Equal(t, first, d.Base)
	after, err := os.ReadFile(filepath.Join(b.root, ".git", "index"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(index, after), "the repository is not written to")

	// The key changes with state that only git knows.
	key := b.index.DiffKey()
	b.git("commit", "-q", "--allow-empty", "-m", "third")
	require.NotEqual(t, key, b.index.DiffKey())
	b.git("checkout", "-q", "--detach")
	require.Empty(t, b.diff().Git.Branch)

	// Another clone lacks the base commit.
	require.NoError(t, os.RemoveAll(filepath.Join(b.root, ".git")))
	b.git("init", "-q", "-b", "main")
	d = b.diff()
	require.Equal(t, &workspacefile.GitState{Branch: "main", Dirty: true}, d.Git)
	require.Len(t, d.Files, d.FilesChanged)
	require.Contains(t, deltas(d), "a", "everything is new to an empty repository")
}

func TestDiffHasBounds(t *testing.T) {
	t.Parallel()
	for _, repository := range []bool{false, true} {
		b := setup(t)
		if repository {
			needGit(t)
			b.git("init", "-q")
			b.git("commit", "-q", "--allow-empty", "-m", "first")
		}
		b.attach()
		b.sync()
		line := strings.Repeat("x", 99) + "\n"
		b.write("a", strings.Repeat(line, 8_000))
		b.write("b", strings.Repeat(line, 8_000))
		d := b.diff()
		require.True(t, d.Truncated)
		require.LessOrEqual(t, len(d.Patch), workspacefile.MaxPatchBytes)
		require.Greater(t, len(d.Patch), workspacefile.MaxPatchBytes-200)
		require.True(t, bytes.HasSuffix(d.Patch, []byte("\n")), "it is cut between lines")
		require.EqualValues(t, 16_000, d.Additions, "all of them are counted")
	}
}

func TestHeadOfMatchesGit(t *testing.T) {
	t.Parallel()
	needGit(t)
	b := setup(t)
	require.Equal(t, Head{}, HeadOf(b.root))
	b.git("init", "-q", "-b", "main")
	h := HeadOf(b.root)
	require.True(t, h.Repository)
	require.Equal(t, "main", h.Branch)
	require.Empty(t, h.Commit)
	b.git("commit", "-q", "--allow-empty", "-m", "first")
	require.Equal(t, b.git("rev-parse", "HEAD"), HeadOf(b.root).Commit)
	b.git("pack-refs", "--all")
	require.Equal(t, b.git("rev-parse", "HEAD"), HeadOf(b.root).Commit, "packed")
	tree := filepath.Join(t.TempDir(), "tree")
	b.git("worktree", "add", "-q", "-b", "other", tree)
	require.Equal(t, "other", HeadOf(tree).Branch)
	require.Equal(t, b.git("rev-parse", "HEAD"), HeadOf(tree).Commit, "of another working tree")
	b.git("checkout", "-q", "--detach")
	require.Empty(t, HeadOf(b.root).Branch)
	require.Equal(t, b.git("rev-parse", "HEAD"), HeadOf(b.root).Commit)
	require.NoError(t, os.WriteFile(filepath.Join(b.root, ".git", "HEAD"), []byte("ref: ../../../etc/passwd\n"), 0o600))
	require.Empty(t, HeadOf(b.root).Commit)
}

// The agent controls the content of its workspace, which may include pipes. Reading a pipe blocks
// until data is written to it.
func TestPipesAreSkipped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	git := filepath.Join(b.root, ".git")
	require.NoError(t, os.Mkdir(git, 0o700))
	pipes := []string{".git/HEAD", ".git/commondir", ".git/index", ".git/packed-refs", ".gitignore", "below/.gitignore", "file"}
	require.NoError(t, os.Mkdir(filepath.Join(b.root, "below"), 0o700))
	for _, name := range pipes {
		require.NoError(t, unix.Mkfifo(filepath.Join(b.root, name), 0o600))
	}
	check := func() {
		t.Helper()
		require.Equal(t, Head{Repository: true, sign: "@"}, withoutTime(HeadOf(b.root)))
		w, err := walk(b.root, 10, nil)
		require.NoError(t, err)
		w.each(func(path string, _ stat) { require.Fail(t, path) })
	}
	check()
	for _, name := range pipes { // a reader would block, because nothing is written
		writer, err := os.OpenFile(filepath.Join(b.root, name), os.O_RDWR, 0)
		require.NoError(t, err)
		defer writer.Close()
	}
	check()
	require.NoError(t, os.Remove(filepath.Join(git, "HEAD")))
	require.NoError(t, os.WriteFile(filepath.Join(git, "HEAD"), []byte("ref: refs/heads/main\n"), 0o600))
	require.Empty(t, HeadOf(b.root).Commit)
}

// withoutTime returns a head without the index's time.
func withoutTime(h Head) Head {
	h.sign, _, _ = strings.Cut(h.sign, " ")
	return h
}

// apply applies edits to the old lines and returns the new ones.
func apply(a, b []string, edits []edit) []string {
	var out []string
	at := 0
	for _, e := range edits {
		out = append(out, a[at:e.a0]...)
		out = append(out, b[e.b0:e.b1]...)
		at = e.a1
	}
	return append(out, a[at:]...)
}

func TestEditsTransformText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 30)
		a, b := lines.Draw(t, "a"), lines.Draw(t, "b")
		edits := compare(a, b)
		require.Equal(t, strings.Join(b, ","), strings.Join(apply(a, b, edits), ","))
		last := 0
		for _, e := range edits {
			require.GreaterOrEqual(t, e.a0, last)
			require.Positive(t, e.a1-e.a0+e.b1-e.b0)
			last = e.a1
		}
	})
	a := make([]string, 5000)
	b := make([]string, 5000)
	for i := range a {
		a[i], b[i] = "a", "b"
	}
	require.Equal(t, []edit{{0, 5000, 0, 5000}}, compare(a, b), "too different to look for more")
}

// TestGitAppliesPatch applies our own diffs with git.
func TestGitAppliesPatch(t *testing.T) {
	t.Parallel()
	needGit(t)
	texts := []string{
		"", "a", "a\n", "a\nb\nc\n", "a\nB\nc", "\n\n\n", "a\n\n\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\n", "A\n\n\nb\nc\nd\ne\nf\ng\nh\ni\nj\nK\nl",
	}
	for _, before := range texts {
		for _, after := range texts {
			if before == after {
				continue
			}
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte(before), 0o600))
			var patch bytes.Buffer
			unified(&patch, "f", []byte(before), []byte(after))
			cmd := exec.CommandContext(t.Context(), "git", "apply", "-")
			cmd.Dir, cmd.Stdin = dir, &patch
			text := patch.String()
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s\n%s", out, text)
			got, err := os.ReadFile(filepath.Join(dir, "f"))
			require.NoError(t, err)
			require.Equal(t, after, string(got), "%s", text)
		}
	}
}
