package worktree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/portable"
	"github.com/overwinter-dev/overwinter/internal/runner/regular"
	"github.com/overwinter-dev/overwinter/internal/runner/workspace"
)

const (
	// MaxFileBytes bounds each file that is not in the repository.
	MaxFileBytes = 32 << 20
	// maxFilesBytes bounds their total size.
	maxFilesBytes = 192 << 20
	// maxRepositoryBytes bounds the bundle of a repository.
	maxRepositoryBytes = 192 << 20
	// maxIgnored is the maximum number of ignored paths that are named.
	maxIgnored = 20
)

// Pack adds the repository and the files of a directory to an archive, and records them and the
// omitted parts in m. It uses scratch for temporary files.
func Pack(ctx context.Context, w *portable.Writer, m *portable.Manifest, dir, scratch string) error {
	p := &packer{w: w, m: m, dir: dir}
	if _, err := os.Lstat(filepath.Join(dir, ".git")); errors.Is(err, fs.ErrNotExist) {
		return p.walk(ctx)
	}
	return p.repository(ctx, scratch)
}

type packer struct {
	w     *portable.Writer
	m     *portable.Manifest
	dir   string
	bytes int64 // of files
}

func (p *packer) git(ctx context.Context, args ...string) (string, error) {
	out, err := workspace.Git(ctx, p.dir, args...)
	return string(out), err
}

func (p *packer) lacks(format string, args ...any) { p.m.AddMissing(fmt.Sprintf(format, args...)) }

// repository adds the history and the differences from its head.
func (p *packer) repository(ctx context.Context, scratch string) error {
	top, err := p.git(ctx, "rev-parse", "--show-prefix")
	if err != nil {
		p.lacks("the history of the repository: %s", firstLine(err.Error()))
		return p.walk(ctx)
	}
	if strings.TrimSpace(top) != "" {
		return p.walk(ctx)
	}
	p.m.Git = &portable.Git{}
	if branch, err := p.git(ctx, "symbolic-ref", "--quiet", "--short", "HEAD"); err == nil {
		p.m.Git.Branch = strings.TrimSpace(branch)
	}
	if remote, err := p.git(ctx, "remote", "get-url", "origin"); err == nil {
		p.m.Git.Remote = plainRemote(strings.TrimSpace(remote))
	}
	head, err := p.git(ctx, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
	if err == nil {
		p.m.Git.Head = strings.TrimSpace(head)
		if err := p.history(ctx, scratch); err != nil {
			return err
		}
	}
	if _, err := p.git(ctx, "rev-parse", "--verify", "--quiet", "refs/stash"); err == nil {
		p.lacks("stashes of the repository")
	}
	if p.m.Git == nil { // without its history, every file is packed individually
		return p.listed(ctx)
	}
	return p.changes(ctx)
}

// history adds the bundle of all branches and tags, or records why it cannot.
func (p *packer) history(ctx context.Context, scratch string) error {
	shallow, err := p.git(ctx, "rev-parse", "--is-shallow-repository")
	if err != nil {
		return err
	}
	if strings.TrimSpace(shallow) == "true" {
		p.lacks("the history of the repository: it is a shallow clone")
		p.m.Git = nil
		return nil
	}
	name := filepath.Join(scratch, portable.RepositoryEntry)
	defer os.Remove(name)
	if _, err := p.git(ctx, "bundle", "create", "--quiet", name, "HEAD", "--branches", "--tags"); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.lacks("the history of the repository: %s", firstLine(err.Error()))
		p.m.Git = nil
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() > maxRepositoryBytes {
		p.lacks("the history of the repository: it has %d bytes; at most %d are archived", info.Size(), int64(maxRepositoryBytes))
		p.m.Git = nil
		return nil
	}
	return p.w.Repository(info.Size(), f)
}

// changes adds the differences of the working tree from the head.
func (p *packer) changes(ctx context.Context) error {
	args := []string{"status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--ignored=matching"}
	status, err := p.git(ctx, args...)
	if err != nil {
		return err
	}
	staged, ignored := false, 0
	for entry := range strings.SplitSeq(status, "\x00") {
		if len(entry) < 4 {
			continue
		}
		state, name := entry[:2], entry[3:]
		switch {
		case state == "!!":
			if ignored++; ignored <= maxIgnored {
				p.lacks("%s (ignored by the repository)", name)
			}
			continue
		case state != "??" && state[0] != ' ':
			staged = true
		}
		if strings.HasSuffix(name, "/") {
			p.lacks("%s (a repository within the workspace)", name)
			continue
		}
		if err := p.add(name, true); err != nil {
			return err
		}
	}
	if ignored > maxIgnored {
		p.lacks("%d more paths that the repository ignores", ignored-maxIgnored)
	}
	if staged {
		p.lacks("which changes were staged")
	}
	return nil
}

// listed adds every file that the repository has or does not ignore.
func (p *packer) listed(ctx context.Context) error {
	list, err := p.git(ctx, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	names := strings.Split(strings.TrimSuffix(list, "\x00"), "\x00")
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name == "" {
			continue
		}
		if strings.HasSuffix(name, "/") {
			p.lacks("%s (a repository within the workspace)", name)
			continue
		}
		if err := p.add(name, false); err != nil {
			return err
		}
	}
	return nil
}

// walk adds the files of a directory without a repository.
func (p *packer) walk(ctx context.Context) error {
	return filepath.WalkDir(p.dir, func(name string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		rel, relErr := filepath.Rel(p.dir, name)
		switch {
		case relErr != nil:
			return relErr
		case errors.Is(err, fs.ErrNotExist) && rel != ".":
			return nil
		case err != nil && rel == ".":
			return err
		case err != nil:
			p.lacks("%s (%s)", rel, firstLine(err.Error()))
			return nil
		case rel == ".":
			return nil
		case strings.EqualFold(d.Name(), ".git"):
			if d.IsDir() {
				p.lacks("%s (a repository within the workspace)", rel)
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		}
		return p.add(filepath.ToSlash(rel), false)
	})
}

// add adds one file or link. It records missing tracked files as deleted.
func (p *packer) add(name string, tracked bool) error {
	full := filepath.Join(p.dir, filepath.FromSlash(name))
	info, err := os.Lstat(full)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if tracked {
			p.m.Deleted = append(p.m.Deleted, name)
		}
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(full)
		if err != nil {
			return err
		}
		if !portable.LinkStaysWithin(name, target) {
			p.lacks("%s (a link that leads out of the workspace)", name)
			return nil
		}
		return p.leaveOut(name, p.w.Link(name, target))
	case info.IsDir(): // a submodule, or a directory that replaced a file
		p.lacks("%s (a repository within the workspace)", name)
		return nil
	case !info.Mode().IsRegular():
		p.lacks("%s (neither a file nor a link)", name)
		return nil
	case info.Size() > MaxFileBytes:
		p.lacks("%s (%d bytes; at most %d are archived per file)", name, info.Size(), MaxFileBytes)
		return nil
	case p.bytes+info.Size() > maxFilesBytes:
		p.lacks("%s (the files before it have %d bytes; at most %d are archived)", name, p.bytes, int64(maxFilesBytes))
		return nil
	}
	data, err := read(full)
	if err != nil {
		p.lacks("%s (%s)", name, firstLine(err.Error()))
		return nil
	}
	p.bytes += int64(len(data))
	return p.leaveOut(name, p.w.File(name, info.Mode(), int64(len(data)), bytes.NewReader(data)))
}

// leaveOut converts the error of a full archive to a note.
func (p *packer) leaveOut(name string, err error) error {
	if errors.Is(err, portable.ErrFull) {
		p.lacks("%s (the archive is full)", name)
		return nil
	}
	return err
}

// read reads a file that may grow in the meantime.
func read(name string) ([]byte, error) {
	f, err := regular.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err == nil && len(data) > MaxFileBytes {
		err = fmt.Errorf("more than %d bytes", MaxFileBytes)
	}
	return data, err
}

// PackAgentFiles adds the agent's own files.
func PackAgentFiles(w *portable.Writer, m *portable.Manifest, files []string) error {
	for _, name := range files {
		err := packAgentFile(w, name, path.Clean(filepath.ToSlash(name)))
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, regular.ErrNotRegular), errors.Is(err, portable.ErrFull):
			m.AddMissing(fmt.Sprintf("%s (%s)", name, firstLine(err.Error())))
		case err != nil:
			return err
		}
	}
	return nil
}

func packAgentFile(w *portable.Writer, name, to string) error {
	f, err := regular.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return w.AgentFile(to, info.Size(), f) // it may have grown since, so only the earlier size is packed
}

var scpRemote = regexp.MustCompile(`^[A-Za-z0-9_.-]+@[A-Za-z0-9.-]+:[^\s:][^\s]*$`)

// plainRemote returns the URL of a repository without credentials; empty if it is not a network
// URL.
func plainRemote(remote string) string {
	if scpRemote.MatchString(remote) {
		return remote
	}
	u, err := url.Parse(remote)
	if err != nil || u.Host == "" || !slices.Contains([]string{"https", "http", "ssh"}, u.Scheme) || strings.HasPrefix(u.Host, "-") {
		return ""
	}
	if u.Scheme != "ssh" {
		u.User = nil
	} else if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	u.RawQuery, u.Fragment = "", ""
	return u.String()
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	if len(line) > 200 {
		line = strings.ToValidUTF8(line[:200], "") + "…"
	}
	return line
}
