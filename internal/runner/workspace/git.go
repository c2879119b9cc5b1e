package workspace

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/runner/regular"
)

// Head is the current state of a repository's HEAD, read from its files without git.
type Head struct {
	Repository bool
	Branch     string // empty if HEAD is detached
	Commit     string // empty before the first commit
	sign       string // changes with the index and HEAD
}

// HeadOf reads HEAD of the repository whose top-level directory is dir.
func HeadOf(dir string) Head {
	gitDir, common, ok := gitDirs(dir)
	if !ok {
		return Head{}
	}
	h := Head{Repository: true}
	text := firstLine(filepath.Join(gitDir, "HEAD"))
	if ref, ok := strings.CutPrefix(text, "ref: "); ok {
		h.Branch = strings.TrimPrefix(ref, "refs/heads/")
		h.Commit = resolve(gitDir, common, ref)
	} else {
		h.Commit = text
	}
	if !isCommit(h.Commit) {
		h.Commit = ""
	}
	h.sign = h.Branch + "@" + h.Commit
	if info, err := os.Stat(filepath.Join(gitDir, "index")); err == nil {
		h.sign += fmt.Sprintf(" %d %d", info.ModTime().UnixNano(), info.Size())
	}
	return h
}

// HasRepository reports whether there may be a repository whose top-level directory is dir.
func HasRepository(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, ".git"))
	return !errors.Is(err, os.ErrNotExist)
}

// gitDirs returns the repository's own directory, and the one that it shares with its other working
// trees.
func gitDirs(dir string) (gitDir, common string, ok bool) {
	gitDir = filepath.Join(dir, ".git")
	info, err := os.Stat(gitDir)
	if err != nil {
		return "", "", false
	}
	if !info.IsDir() {
		to, ok := strings.CutPrefix(firstLine(gitDir), "gitdir: ")
		if !ok {
			return "", "", false
		}
		gitDir = below(dir, to)
	}
	common = gitDir
	if to := firstLine(filepath.Join(gitDir, "commondir")); to != "" {
		common = below(gitDir, to)
	}
	return gitDir, common, true
}

func below(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// resolve finds the commit of a reference, loose or packed.
func resolve(gitDir, common, ref string) string {
	if !filepath.IsLocal(ref) {
		return ""
	}
	for _, dir := range []string{gitDir, common} {
		if commit := firstLine(filepath.Join(dir, ref)); commit != "" {
			return commit
		}
	}
	f, err := regular.Open(filepath.Join(common, "packed-refs"))
	if err != nil {
		return ""
	}
	defer f.Close() // opened only for reading
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if commit, name, ok := strings.Cut(lines.Text(), " "); ok && name == ref {
			return commit
		}
	}
	return ""
}

func firstLine(path string) string {
	f, err := regular.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close() // opened only for reading
	data, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

func isCommit(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

// Git runs git so that it does not write to the repository and starts no hook, monitor or external
// diff that the repository configures. Filters do run, because otherwise every filtered file would
// count as changed; they run in the sandbox, where the agent may run anything.
func Git(ctx context.Context, dir string, args ...string) ([]byte, error) {
	out, _, err := runGit(ctx, dir, nil, 0, args...)
	return out, err
}

// pipeDelay bounds the wait for the output of a git that has exited. A process that git started in
// the background may keep the pipe open, but on a busy machine reading it may also take seconds.
const pipeDelay = 20 * time.Second

// runGit is Git with additional environment, and with at most most bytes of output (0 for all). cut
// reports that the output was longer.
func runGit(ctx context.Context, dir string, env []string, most int64, args ...string) (out []byte, cut bool, err error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{
		"-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null",
		"-c", "core.quotePath=false", "-c", "core.bigFileThreshold=4m", "-C", dir,
	}, args...)...)
	cmd.Env = append(append(os.Environ(), "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C"), env...)
	stderr := &tail{}
	cmd.Stderr = stderr
	cmd.WaitDelay = pipeDelay
	if most == 0 {
		out, err = cmd.Output()
	} else {
		out, cut, err = outputUpTo(cmd, most)
	}
	if err != nil {
		return nil, false, fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.b))
	}
	return out, cut, nil
}

// outputUpTo runs a command until it exits, or has printed enough.
func outputUpTo(cmd *exec.Cmd, most int64) (out []byte, cut bool, err error) {
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, false, err
	}
	if err := cmd.Start(); err != nil {
		return nil, false, err
	}
	out, err = io.ReadAll(io.LimitReader(pipe, most+1))
	if cut = int64(len(out)) > most; cut {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		return out[:most], true, nil
	}
	return out, false, errors.Join(err, cmd.Wait())
}

// tail is a writer that keeps the beginning of its input.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	if room := 4<<10 - len(t.b); room > 0 {
		t.b = append(t.b, p[:min(room, len(p))]...)
	}
	return len(p), nil
}
