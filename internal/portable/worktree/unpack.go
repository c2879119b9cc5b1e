package worktree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/portable"
	"github.com/overwinter-dev/overwinter/internal/runner/workspace"
)

// Staged is an archive that was read and checked, with its content in a staging directory.
type Staged struct {
	portable.Manifest
	dir   string
	names map[string]string // locations of the entries' content
}

// Stage reads an archive into a new directory below scratch. Call Remove to delete it.
func Stage(r io.Reader, scratch string) (s *Staged, err error) {
	s = &Staged{names: map[string]string{}}
	if s.dir, err = os.MkdirTemp(scratch, "archive-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Remove())
		}
	}()
	s.Manifest, err = portable.Read(r, func(e portable.Entry, content io.Reader) error {
		if e.Link != "" {
			return nil
		}
		name := filepath.Join(s.dir, strconv.Itoa(len(s.names)))
		s.names[e.Name] = name
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	})
	return s, err
}

// Remove deletes the staging directory.
func (s *Staged) Remove() error { return os.RemoveAll(s.dir) }

// Content opens the content of an entry.
func (s *Staged) Content(e portable.Entry) (*os.File, error) { return os.Open(s.names[e.Name]) }

// Files writes the repository and the files of the archive into a directory, which must exist and be empty.
func (s *Staged) Files(ctx context.Context, dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		return fmt.Errorf("%s is not empty", dir)
	}
	if s.Git != nil {
		if err := s.repository(ctx, dir); err != nil {
			return fmt.Errorf("repository: %w", err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() // only names
	for _, name := range s.Deleted {
		if err := noLinkAbove(root, name); err != nil {
			return err
		}
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, e := range s.Entries {
		if name, ok := e.WorkspacePath(); ok {
			if err := s.file(root, name, e); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// repository creates the repository and checks out its head.
func (s *Staged) repository(ctx context.Context, dir string) error {
	git := func(args ...string) (string, error) {
		out, err := workspace.Git(ctx, dir, args...)
		return strings.TrimSpace(string(out)), err
	}
	branch := s.Git.Branch
	if branch == "" {
		branch = "main"
	}
	steps := [][]string{{"init", "--quiet", "--initial-branch", branch, "."}}
	if bundle, ok := s.names[portable.RepositoryEntry]; ok {
		steps = append(steps, []string{
			"fetch", "--quiet", "--update-head-ok", "--no-recurse-submodules", "--no-auto-gc", bundle,
			"+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*", "HEAD",
		})
	}
	if remote := plainRemote(s.Git.Remote); remote != "" {
		steps = append(steps, []string{"remote", "add", "origin", remote})
	}
	if s.Git.Head != "" {
		if s.Git.Branch == "" {
			steps = append(steps, []string{"update-ref", "--no-deref", "HEAD", s.Git.Head})
		}
		steps = append(steps, []string{"reset", "--quiet", "--hard"})
	}
	for _, args := range steps {
		if _, err := git(args...); err != nil {
			return err
		}
	}
	if s.Git.Head == "" {
		return nil
	}
	head, err := git("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
	if err == nil && head != s.Git.Head {
		err = fmt.Errorf("its head is %s, and the manifest says %s", head, s.Git.Head)
	}
	return err
}

// file writes a file or a link of the workspace, replacing an existing one.
func (s *Staged) file(root *os.Root, name string, e portable.Entry) error {
	if err := noLinkAbove(root, name); err != nil {
		return err
	}
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if e.Link != "" {
		return root.Symlink(e.Link, name)
	}
	content, err := s.Content(e)
	if err != nil {
		return err
	}
	defer content.Close() // only read
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Chmod(e.Mode.Perm() | 0o600)
	}
	return errors.Join(err, f.Close())
}

// noLinkAbove returns an error if a directory above a path is a link, because the repository may
// contain a link to git's own directory or out of the workspace.
func noLinkAbove(root *os.Root, name string) error {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		info, err := root.Lstat(dir)
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a link", dir)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// AgentFiles writes the agent's own files to the paths that place returns; files with an empty path
// are skipped.
func (s *Staged) AgentFiles(place func(path string) string) error {
	for _, e := range s.Entries {
		if !e.AgentFile() {
			continue
		}
		to := place(e.Path)
		if to == "" {
			continue
		}
		if err := s.agentFile(to, e); err != nil {
			return err
		}
	}
	return nil
}

func (s *Staged) agentFile(to string, e portable.Entry) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	content, err := s.Content(e)
	if err != nil {
		return err
	}
	defer content.Close() // only read
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}
