package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/workspace"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func TestSealStopsProcessesAndListsFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.attach(runner.Hello{Run: "run_1"})
	launch := b.shell(`setsid sleep 1000 & echo $! > child; while read -r line; do echo "$line" >> "$HOME/one.txt"; echo "got $line"; done; echo "final line" >> "$HOME/one.txt"`)
	path := filepath.Join(b.paths.Home, "one.txt")
	launch.Transcripts = []string{path}
	require.NoError(t, w.Start(runner.Start{Launch: launch, Input: []byte("hello\n")}))
	w.line("got hello")
	s := store{}
	w.sync(s, 1)
	require.Equal(t, "hello\n", string(s[path].Data))
	require.NoError(t, w.Close())

	seal, segments := b.seal(runner.SealRequest{Known: s.positions(), Grace: deadline})
	for _, seg := range segments {
		s.add(t, seg)
	}
	text := "hello\nfinal line\n"
	require.Equal(t, text, string(s[path].Data), "text that the agent wrote while it was stopped is handed over")
	want := runner.Seal{
		Manifest:  manifest.Manifest{AgentFiles: []manifest.File{{Path: path, Size: int64(len(text)), SHA256: hashOf(text)}}, Runner: build(t)},
		Run:       "run_1",
		LastFrame: 1, // the answer and the exit
	}
	require.EqualValues(t, 1, seal.Manifest.Tree.Entries)
	want.Manifest.Tree = seal.Manifest.Tree
	require.Equal(t, want, seal)
	child, err := strconv.Atoi(strings.TrimSpace(b.file("child")))
	require.NoError(t, err)
	require.ErrorIs(t, syscall.Kill(child, 0), syscall.ESRCH, "the detached child is left")
	p := b.ping()
	require.True(t, p.Sealed)
	require.False(t, p.Agent)
	require.Empty(t, p.Run)

	again, segments := b.seal(runner.SealRequest{Known: s.positions()})
	require.Equal(t, want, again)
	require.Empty(t, segments)
	_, segments = b.seal(runner.SealRequest{})
	require.Len(t, segments, 1, "a worker that lost the first answer gets it all")
	cut := []transcript.Position{{Path: path, Version: 1, Size: 3, Cut: true}}
	_, segments = b.seal(runner.SealRequest{Known: cut})
	require.Empty(t, segments, "a worker stores no more of a file that is beyond a limit")
	cut[0].Size = 100
	_, segments = b.seal(runner.SealRequest{Known: cut})
	require.Len(t, segments, 1, "unless it was written again")
	require.EqualValues(t, 2, segments[0].Version)

	// A snapshot taken now contains a run that has ended, not an interrupted run.
	b.stop(syscall.SIGKILL)
	b.start()
	w = b.attach(runner.Hello{Run: "run_1", From: 1})
	require.Equal(t, runner.Welcome{Version: runner.ProtocolVersion, Delivery: runner.Delivered, LastFrame: 1, Steers: true, Seals: true}, w.Welcome())
	require.Equal(t, runner.StoppedSeal, w.exit().Stopped)
	again, _ = b.seal(runner.SealRequest{Known: s.positions()})
	require.Equal(t, want.Manifest, again.Manifest, "the patterns outlive the runner")

	w = b.started("run_2", echo, "on\n")
	w.line("got on")
	require.False(t, b.ping().Sealed)
}

func TestSealKillsStubbornAgent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", `trap '' TERM; echo ready; while :; do sleep 1000; done`, "")
	w.line("ready")
	seal, _ := b.seal(runner.SealRequest{Grace: 50 * time.Millisecond})
	require.Equal(t, []manifest.File{}, seal.Manifest.AgentFiles)
	r := w.exit()
	require.Equal(t, "killed", r.Signal)
	require.Equal(t, runner.StoppedSeal, r.Stopped)
	require.False(t, r.Interrupted)
}

func TestSealOfUnusedSandbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	seal, segments := b.seal(runner.SealRequest{})
	require.NotEmpty(t, seal.Manifest.Tree.Digest)
	seal.Manifest.Tree = nil
	require.Equal(t, runner.Seal{Manifest: manifest.Manifest{AgentFiles: []manifest.File{}, Runner: build(t)}, LastFrame: -1}, seal)
	require.Empty(t, segments)
}

func TestStartDuringSealIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// The agent exits when the test requests it, and the seal waits for the exit.
	w := b.started("run_1", `echo ready; while [ ! -e end ]; do sleep 0.01; done`, "")
	w.line("ready")
	agent := b.ping().AgentPID
	sealed := make(chan int, 1)
	go func() {
		_, _, code := b.run(b.paths.Seal(runner.SealRequest{Token: b.token, Grace: 2 * deadline}))
		sealed <- code
	}()
	require.Eventually(t, func() bool { // closing stdin is the first step of a seal
		return !stdinOpen(agent, b.serve.Process.Pid)
	}, deadline, poll)
	w = b.attach(runner.Hello{Run: "run_2"})
	require.NoError(t, w.Start(runner.Start{Launch: b.shell(echo), Input: []byte("x\n")}))
	require.NoError(t, w.Flush(1))
	require.Equal(t, &runner.Flushed{ID: 1}, w.next(), "the start was received and waits")
	require.NoError(t, os.WriteFile(filepath.Join(b.paths.Workspace, "end"), nil, 0o644))
	require.Nil(t, w.next())
	refusal, ok := errors.AsType[*runner.Error](w.end)
	require.True(t, ok, "%v", w.end)
	require.Equal(t, runner.CodeStopping, refusal.Code)
	require.Zero(t, <-sealed)
	require.True(t, b.ping().Sealed)
	require.Equal(t, runner.NotStarted, b.attach(runner.Hello{Run: "run_2"}).Welcome().Delivery)
}

// stdinOpen reports whether the runner still has the pipe to the agent's stdin open.
func stdinOpen(agent, serve int) bool {
	pipe, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(agent), "fd", "0"))
	if err != nil {
		return false
	}
	fds, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(serve), "fd", "*"))
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && target == pipe {
			return true
		}
	}
	return false
}

func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

func (b *sandbox) verify(m manifest.Manifest) runner.Verification {
	b.t.Helper()
	v, err := runner.ParseVerify(b.ok(b.paths.Verify(m)))
	require.NoError(b.t, err)
	return v
}

func TestVerifyFindsChangedAndMissingFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a, c := b.write("log/a.jsonl", "aaaa", os.O_APPEND), b.write("log/c.jsonl", "cccc", os.O_APPEND)
	d := b.write("one.txt", "dddd", os.O_APPEND)
	b.agentFiles("run_1", nil)
	seal, _ := b.seal(runner.SealRequest{})
	require.Len(t, seal.Manifest.AgentFiles, 3)
	same := &manifest.TreeDifference{}
	require.Equal(t, runner.Verification{Missing: []string{}, Mismatched: []string{}, Tree: same}, b.verify(seal.Manifest))

	require.NoError(t, os.Remove(a))
	b.write("log/c.jsonl", "cccX", 0)
	b.write("one.txt", "d", os.O_APPEND)
	require.Equal(t, runner.Verification{
		Missing: []string{a}, Mismatched: []string{c}, Longer: []string{d},
		Found: []manifest.File{{Path: c, Size: 4, SHA256: hashOf("cccX")}}, Tree: same,
	}, b.verify(seal.Manifest))
}

func TestManifestKnowsRepository(t *testing.T) {
	t.Parallel()
	needGit(t)
	b := setup(t)
	dir := b.paths.Workspace
	gitIn(t, dir, "init", "-q")
	taken := func() manifest.Manifest {
		s, _ := b.seal(runner.SealRequest{})
		require.NotNil(t, s.Manifest.Git)
		return s.Manifest
	}
	require.Equal(t, &manifest.Git{}, taken().Git, "no commit and nothing changed")

	file := filepath.Join(dir, "file name\n")
	require.NoError(t, os.WriteFile(file, []byte("one"), 0o644))
	gitIn(t, dir, "add", ".")
	gitIn(t, dir, "commit", "-q", "-m", "one")
	clean := taken()
	require.Equal(t, &manifest.Git{Head: gitIn(t, dir, "rev-parse", "HEAD")}, clean.Git)

	require.NoError(t, os.WriteFile(file, []byte("two"), 0o644))
	dirty := taken()
	require.NotEmpty(t, dirty.Git.DirtyHash)
	require.Equal(t, dirty, taken())
	require.Equal(t, []string{runner.GitChanges}, b.verify(clean).Mismatched)
	require.Empty(t, b.verify(dirty).Mismatched)

	require.NoError(t, os.WriteFile(file, []byte("owt"), 0o644))
	require.NotEqual(t, dirty.Git, taken().Git, "the content counts, not the list of names")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "new"), []byte("1"), 0o644))
	untracked := taken()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "new"), []byte("2"), 0o644))
	require.NotEqual(t, untracked.Git, taken().Git)

	gitIn(t, dir, "add", ".")
	gitIn(t, dir, "commit", "-q", "-m", "two")
	require.Equal(t, []string{runner.GitChanges, runner.GitHead}, b.verify(untracked).Mismatched)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, ".git")))
	require.Equal(t, []string{runner.GitHead}, b.verify(clean).Missing)
}

func TestRepositoryCannotMakeManifestRunItsCommands(t *testing.T) {
	t.Parallel()
	needGit(t)
	b := setup(t)
	dir := b.paths.Workspace
	gitIn(t, dir, "init", "-q")
	gitIn(t, dir, "config", "core.fsmonitor", "touch "+filepath.Join(dir, "ran")+"; false")
	b.seal(runner.SealRequest{})
	require.NoFileExists(t, filepath.Join(dir, "ran"))
}

// If sealing a sandbox fails, it is never saved, and its session never hibernates.
func TestUnreadableRepositoryIsSealed(t *testing.T) {
	t.Parallel()
	needGit(t)
	for name, spoil := range map[string]func(t *testing.T, git string){
		"empty": func(t *testing.T, git string) {
			t.Helper()
			require.NoError(t, os.RemoveAll(git))
			require.NoError(t, os.Mkdir(git, 0o700))
		},
		"a file": func(t *testing.T, git string) {
			t.Helper()
			require.NoError(t, os.RemoveAll(git))
			require.NoError(t, os.WriteFile(git, []byte("x"), 0o600))
		},
		"no index": func(t *testing.T, git string) {
			t.Helper()
			require.NoError(t, os.WriteFile(filepath.Join(git, "index"), []byte("x"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			dir := b.paths.Workspace
			gitIn(t, dir, "init", "-q")
			whole, _ := b.seal(runner.SealRequest{})
			require.NotNil(t, whole.Manifest.Git)

			spoil(t, filepath.Join(dir, ".git"))
			sealed, _ := b.seal(runner.SealRequest{})
			require.Nil(t, sealed.Manifest.Git)
			require.NotEmpty(t, sealed.Manifest.Tree.Digest)
			require.Equal(t, []string{runner.GitHead}, b.verify(whole.Manifest).Mismatched)
			require.Empty(t, b.verify(sealed.Manifest).Mismatched)
		})
	}
}

func TestSparseFileIsNotReadToItsEnd(t *testing.T) {
	t.Parallel()
	needGit(t)
	b := setup(t)
	dir := b.paths.Workspace
	gitIn(t, dir, "init", "-q")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sparse"), nil, 0o600))
	require.NoError(t, os.Truncate(filepath.Join(dir, "sparse"), 1<<42)) // would take hours to read
	sealed, _ := b.seal(runner.SealRequest{})
	require.NotEmpty(t, sealed.Manifest.Git.DirtyHash)
	require.Empty(t, b.verify(sealed.Manifest).Mismatched)
	require.NoError(t, os.Truncate(filepath.Join(dir, "sparse"), 1<<42+1))
	require.Equal(t, []string{runner.GitChanges}, b.verify(sealed.Manifest).Mismatched)
}

// build returns the build id of this program, which the tests run as the runner.
func build(t *testing.T) string {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	build, err := runner.Build(program)
	require.NoError(t, err)
	return build
}

// needGit fails the test if git is missing. make test installs it.
func needGit(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("git")
	require.NoError(t, err, "these tests need git")
}

// TestRestoredWorkspaceIsListedOnce checks that the runner lists the workspace when it starts, and
// that a comparison with the manifest uses this listing until an agent has been started.
func TestRestoredWorkspaceIsListedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	file := func(name string) {
		require.NoError(t, os.WriteFile(filepath.Join(b.paths.Workspace, name), []byte(name), 0o600))
	}
	file("saved")
	seal, _ := b.seal(runner.SealRequest{FilesFrom: &workspacefile.Position{Session: "ses_1"}})
	tree, err := workspace.List(t.Context(), b.paths.Workspace).Take(t.Context(), t.TempDir())
	require.NoError(t, err)
	require.Equal(t, tree.Digest, seal.Manifest.Tree.Digest)
	require.EqualValues(t, 1, seal.Manifest.Tree.Entries)

	b.stop(syscall.SIGTERM)
	b.start()
	compare := func() []string {
		t.Helper()
		v, err := runner.ParseVerify(b.ok(b.paths.VerifyRunning(seal.Manifest, &runner.PingRequest{Token: b.token, Wait: deadline})))
		require.NoError(t, err)
		require.NotNil(t, v.Runner)
		return v.Tree.Paths
	}
	require.Empty(t, compare())
	file("later")
	require.Empty(t, compare(), "it is not listed again")
	b.started("run_1", echo, "hello\n").line("got hello")
	require.Equal(t, []string{filepath.Join(b.paths.Workspace, "later") + " (added)"}, compare(), "an agent may have changed it")
}
