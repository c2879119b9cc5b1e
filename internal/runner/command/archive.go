package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/durable"
	"github.com/overwinter-dev/overwinter/internal/portable"
	"github.com/overwinter-dev/overwinter/internal/portable/worktree"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

// Pack prints a portable archive of the workspace and the agent's own files.
func Pack(ctx context.Context, dir, workspace string, stdin io.Reader, stdout io.Writer) (err error) {
	var r runner.PackRequest
	if err := request(stdin, &r); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(dir, "pack-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	out := bufio.NewWriterSize(stdout, 64<<10)
	w := portable.NewWriter(out)
	if err := worktree.Pack(ctx, w, &r.Manifest, workspace, scratch); err != nil {
		return fmt.Errorf("pack the workspace: %w", err)
	}
	if err := worktree.PackAgentFiles(w, &r.Manifest, r.AgentFiles); err != nil {
		return fmt.Errorf("pack the agent's files: %w", err)
	}
	if err := w.Close(r.Manifest); err != nil {
		return err
	}
	return out.Flush()
}

// Unpack writes the archive on stdin into the workspace, whose files it replaces, and the agent's
// files into its home. Unpacking the same archive again has no effect. The archive is read and
// verified to its end before anything is changed.
func Unpack(ctx context.Context, dir, home, workspace, archive string, stdin io.Reader, stdout io.Writer) (err error) {
	staged, err := worktree.Stage(stdin, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, staged.Remove()) }()
	unlock, err := lock(filepath.Join(dir, "workspace-unpack-lock"))
	if err != nil {
		return err
	}
	defer unlock()
	mark := runner.UnpackedMark(dir)
	if have, err := os.ReadFile(mark); err == nil && string(have) == archive {
		return reply(stdout, runner.Written{})
	}
	if err := empty(workspace); err != nil {
		return err
	}
	if err := staged.Files(ctx, workspace); err != nil {
		return fmt.Errorf("unpack the workspace: %w", err)
	}
	var outside string
	err = staged.AgentFiles(func(path string) string {
		if !strings.HasPrefix(path, home+"/") {
			outside = path
			return ""
		}
		return path
	})
	if err == nil && outside != "" {
		err = fmt.Errorf("%s is not in the agent's home", outside)
	}
	if err != nil {
		return fmt.Errorf("unpack the agent's files: %w", err)
	}
	unix.Sync()
	if err := durable.WriteFile(mark, []byte(archive)); err != nil {
		return err
	}
	return reply(stdout, runner.Written{Files: len(staged.Entries)})
}

// empty creates an empty directory.
func empty(dir string) error {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// lock waits for a lock, which is released when the process exits at the latest.
func lock(name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil // releases the lock
}
