package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/runner/regular"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

const (
	// diffBudget bounds the run time of git in a large workspace. It is much shorter than a
	// worker's timeout, because the link is silent meanwhile.
	diffBudget = 10 * time.Second
	// maxDeltas bounds the list of changed files in a diff. The counts include all files.
	maxDeltas = 2000
)

// emptyTree is git's id of a tree without files.
const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// DiffKey returns a key of the current state. The diff changes only if the key does. It is empty if
// no diff can be taken yet.
func (i *Index) DiffKey() string {
	h := HeadOf(i.root)
	if !h.Repository && i.s.Seq == 0 {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %s %s", i.s.Lineage, i.s.Seq, i.s.Base, h.sign))
	return hex.EncodeToString(sum[:16])
}

// TakeDiff compares a workspace with its state at the beginning, using the index stored in dir. It
// starts processes, so it must not be called in the process that reaps the agent's.
func TakeDiff(ctx context.Context, root, dir, key string) (workspacefile.Diff, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, diffBudget, errors.New("git took too long"))
	defer cancel()
	i := Open(root, dir)
	d := workspacefile.Diff{Key: key, Base: i.s.Base, Files: []workspacefile.Delta{}, At: time.Now().UTC()}
	_, noGit := exec.LookPath("git")
	repository := HeadOf(root).Repository && noGit == nil
	var err error
	if repository {
		if d.Git, err = gitState(ctx, root); err != nil {
			return d, err
		}
	}
	if repository && d.Base != "" {
		err = i.gitDiff(ctx, &d)
	} else {
		i.ownDiff(&d)
	}
	d.Patch, d.Truncated = bounded(d.Patch, d.Truncated)
	d.FilesChanged = len(d.Files)
	for _, f := range d.Files {
		d.Additions += f.Additions
		d.Deletions += f.Deletions
	}
	if len(d.Files) > maxDeltas {
		d.Files, d.Truncated = d.Files[:maxDeltas], true
	}
	return d, err
}

// bounded truncates a patch after the last line within its bound.
func bounded(patch []byte, truncated bool) ([]byte, bool) {
	if len(patch) > workspacefile.MaxPatchBytes {
		patch, truncated = patch[:workspacefile.MaxPatchBytes], true
	}
	if truncated {
		patch = patch[:bytes.LastIndexByte(patch, '\n')+1]
	}
	return patch, truncated
}

func gitState(ctx context.Context, root string) (*workspacefile.GitState, error) {
	out, err := Git(ctx, root, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--ignore-submodules=all")
	if err != nil {
		return nil, err
	}
	var s workspacefile.GitState
	for field := range strings.SplitSeq(string(out), "\x00") {
		if oid, ok := strings.CutPrefix(field, "# branch.oid "); ok {
			if isCommit(oid) {
				s.Head = oid
			}
		} else if name, ok := strings.CutPrefix(field, "# branch.head "); ok {
			if name != "(detached)" {
				s.Branch = name
			}
		} else if field != "" && !strings.HasPrefix(field, "# ") {
			s.Dirty = true
		}
	}
	return &s, nil
}

// gitDiff compares the working tree with the base, using git. It adds untracked files to a copy of
// the index, so that they count as added; the repository itself is not written to.
func (i *Index) gitDiff(ctx context.Context, d *workspacefile.Diff) error {
	gitDir, common, ok := gitDirs(i.root)
	if !ok {
		return errors.New("the repository was removed")
	}
	temp, err := os.MkdirTemp(i.dir, "diff-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	index := filepath.Join(temp, "index")
	data, err := regular.Read(filepath.Join(gitDir, "index"), maxGitIndex)
	if err == nil {
		err = os.WriteFile(index, data, 0o600)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("copy the index of the repository: %w", err)
	}
	objects := filepath.Join(temp, "objects")
	if err := os.Mkdir(objects, 0o700); err != nil {
		return err
	}
	env := []string{
		"GIT_INDEX_FILE=" + index, "GIT_OBJECT_DIRECTORY=" + objects,
		"GIT_ALTERNATE_OBJECT_DIRECTORIES=" + filepath.Join(common, "objects"),
	}
	base := d.Base
	if _, _, err := runGit(ctx, i.root, env, 0, "cat-file", "-e", base+"^{commit}"); err != nil {
		// The history was rewritten, or this is another clone.
		if base = HeadOf(i.root).Commit; base == "" {
			base = emptyTree
		}
		d.Base = base
	}
	paths := []string{"--", ".", ":(exclude,glob)**/node_modules/**", ":(exclude)" + workspacefile.AttachmentDir}
	if _, _, err := runGit(ctx, i.root, env, 0, append([]string{"add", "--intent-to-add", "--ignore-errors"}, paths...)...); err != nil {
		return err
	}
	how := []string{"--no-ext-diff", "--no-textconv", "--no-renames", "--no-color", "--ignore-submodules=all", base}
	out, _, err := runGit(ctx, i.root, env, 0, append(append([]string{"diff", "--raw", "--numstat", "-z"}, how...), paths...)...)
	if err != nil {
		return err
	}
	d.Files = parseDeltas(out)
	if len(d.Files) == 0 {
		return nil
	}
	d.Patch, d.Truncated, err = runGit(ctx, i.root, env, workspacefile.MaxPatchBytes, append(append([]string{"diff", "--patch"}, how...), paths...)...)
	return err
}

// parseDeltas parses the output of git diff --raw --numstat -z.
func parseDeltas(out []byte) []workspacefile.Delta {
	changes := map[string]workspacefile.ChangeKind{}
	files := []workspacefile.Delta{}
	fields := strings.Split(string(out), "\x00")
	for j := 0; j < len(fields); j++ {
		field := fields[j]
		if strings.HasPrefix(field, ":") {
			words := strings.Fields(field)
			if j++; j >= len(fields) || len(words) < 5 {
				break
			}
			switch words[4][0] {
			case 'A':
				changes[fields[j]] = workspacefile.Created
			case 'D':
				changes[fields[j]] = workspacefile.Deleted
			default:
				changes[fields[j]] = workspacefile.Modified
			}
			continue
		}
		parts := strings.SplitN(field, "\t", 3)
		if len(parts) != 3 {
			continue
		}
		f := workspacefile.Delta{Path: parts[2], Change: changes[parts[2]], Binary: parts[0] == "-"}
		f.Additions, _ = strconv.ParseInt(parts[0], 10, 64) // "-" for binary files
		f.Deletions, _ = strconv.ParseInt(parts[1], 10, 64)
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b workspacefile.Delta) int { return strings.Compare(a.Path, b.Path) })
	return files
}

// ownDiff compares the files with the copies of their first contents.
func (i *Index) ownDiff(d *workspacefile.Diff) {
	var patch bytes.Buffer
	for _, path := range slices.Sorted(maps.Keys(i.s.Entries)) {
		e := i.s.Entries[path]
		if e.Deleted && !e.There || e.There && !e.Deleted && (e.Initial || e.First != "" && e.First == e.SHA256) {
			continue
		}
		f := workspacefile.Delta{Path: path, Change: workspacefile.Modified}
		switch {
		case e.Deleted:
			f.Change = workspacefile.Deleted
		case !e.There:
			f.Change = workspacefile.Created
		}
		before, okBefore := i.firstContent(e)
		after, okAfter := i.content(path, e)
		if f.Change == workspacefile.Modified && okBefore && okAfter && bytes.Equal(before, after) {
			continue
		}
		f.Binary = !okBefore || !okAfter || isBinary(before) || isBinary(after)
		switch {
		case f.Binary:
			fmt.Fprintf(&patch, "diff --git a/%s b/%s\nBinary files differ\n", path, path)
		case patch.Len() <= workspacefile.MaxPatchBytes:
			f.Additions, f.Deletions = unified(&patch, path, before, after)
		default:
			f.Additions, f.Deletions = unified(&bytes.Buffer{}, path, before, after)
		}
		d.Files = append(d.Files, f)
	}
	d.Patch = patch.Bytes()
}

// firstContent returns a file's content at the beginning, nil if it did not exist; false if there
// is no copy.
func (i *Index) firstContent(e *entry) ([]byte, bool) {
	if !e.There {
		return nil, true
	}
	if e.First == "" {
		return nil, false
	}
	data, err := regular.Read(i.firstFile(e.First), workspacefile.MaxBytes)
	return notNil(data), err == nil
}

// content returns a file's current content, nil if it does not exist; false if it is too large to
// compare.
func (i *Index) content(path string, e *entry) ([]byte, bool) {
	if e.Deleted {
		return nil, true
	}
	got, err := i.read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, true
	}
	return notNil(got.data), err == nil && got.data != nil
}

func notNil(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}
