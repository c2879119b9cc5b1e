package command

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/runner/regular"
	"github.com/overwinter-dev/overwinter/internal/runner/workspace"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// gitBudget bounds the run time of git in a large workspace.
const gitBudget = time.Minute

// maxDirty bounds the bytes that are read of files that git reports as changed.
const maxDirty = 1 << 30

// maxManifestNames bounds the bytes of the paths in a manifest as JSON. 4096 ordinary paths take a
// tenth of it.
const maxManifestNames = 8 << 20

// agentFiles describes the agent's files.
func agentFiles(files []string) ([]manifest.File, error) {
	described := []manifest.File{}
	names := 0
	for _, path := range files {
		// A worker stores at most this many files, and its receipts report the omission.
		if names += 6 * len(path); len(described) == transcript.MaxFiles || names > maxManifestNames {
			break
		}
		if len(path) > transcript.MaxPath || !utf8.ValidString(path) {
			continue
		}
		f, err := describe(path)
		if err != nil {
			return nil, err
		}
		described = append(described, f)
	}
	return described, nil
}

func describe(path string) (manifest.File, error) {
	f, err := regular.Open(path)
	if err != nil {
		return manifest.File{}, err
	}
	defer f.Close() // opened only for reading
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err != nil {
		return manifest.File{}, fmt.Errorf("read %s: %w", path, err)
	}
	return manifest.File{Path: path, Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// describeGit returns nil if the workspace is not a repository or git is missing.
func describeGit(ctx context.Context, dir string) (*manifest.Git, error) {
	if dir == "" {
		return nil, nil
	}
	if _, err := os.Stat(filepath.Join(dir, ".git")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if _, err := exec.LookPath("git"); err != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, gitBudget)
	defer cancel()
	head, err := workspace.Git(ctx, dir, "rev-parse", "--verify", "--quiet", "HEAD")
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		head, err = nil, nil // no commit yet
	}
	if err != nil {
		return nil, err
	}
	status, err := workspace.Git(ctx, dir, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames")
	if err != nil {
		return nil, err
	}
	g := &manifest.Git{Head: strings.TrimSpace(string(head))}
	if len(status) > 0 {
		g.DirtyHash, err = dirtyHash(ctx, dir, status)
	}
	return g, err
}

// dirtyHash covers the files that git reports as changed: the kind of change, and their current
// content. For files beyond maxDirty, it covers size and modification time, because a sparse file
// may be larger than can be read.
func dirtyHash(ctx context.Context, dir string, status []byte) (string, error) {
	sum := sha256.New()
	room := int64(maxDirty)
	for entry := range bytes.SplitSeq(status, []byte{0}) {
		if len(entry) < 4 {
			continue
		}
		path := filepath.Join(dir, string(entry[3:]))
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			_, _ = fmt.Fprintf(sum, "%q\n", entry)
			continue
		case err != nil:
			return "", err
		}
		content := ""
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case info.Mode().IsRegular() && info.Size() > room:
			content = fmt.Sprint(info.Size(), " ", info.ModTime().UnixNano())
		case info.Mode().IsRegular():
			room -= info.Size()
			f, err := describe(path)
			if err != nil {
				return "", err
			}
			content = f.SHA256
		case info.Mode()&fs.ModeSymlink != 0:
			if content, err = os.Readlink(path); err != nil {
				return "", err
			}
		}
		_, _ = fmt.Fprintf(sum, "%q %s %q\n", entry, info.Mode(), content)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// beginsWith reports whether the file at a path begins with the described bytes.
func beginsWith(want manifest.File) bool {
	f, err := regular.Open(want.Path)
	if err != nil {
		return false
	}
	defer f.Close() // opened only for reading
	sum := sha256.New()
	n, err := io.CopyN(sum, f, want.Size)
	return err == nil && n == want.Size && hex.EncodeToString(sum.Sum(nil)) == want.SHA256
}
