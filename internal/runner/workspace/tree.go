package workspace

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/runner/regular"
)

// Bounds of a tree. Anything beyond them is reported as unchecked.
const (
	maxTreeEntries = 200_000
	maxTreeDepth   = 400
	// treeBudget bounds the time for listing a workspace. hashBudget bounds the bytes that are read
	// of files that differ only in their modification time.
	treeBudget = 10 * time.Second
	hashBudget = 256 << 20
	// A tree uses the checksums in the index of changes. Of the files that are not in it, the
	// newest are read.
	maxSummed, maxSummedBytes = 1000, 16 << 20
	// maxDifferences bounds the paths that a comparison reports, and maxShownPath the bytes of
	// each.
	maxDifferences = 50
	maxShownPath   = 256
)

// treeEntry is one file, directory, symbolic link or other entry of a workspace.
type treeEntry struct {
	path     string // relative to the workspace
	mode     uint32 // type and permission bits
	size     int64  // 0 for a directory, whose size depends on the file system
	modified int64  // in Unix nanoseconds; 0 for a directory, which changes with its entries
	target   string // of a symbolic link, or the device number of a device
	sum      string // SHA-256 of the content, if known
}

// line appends the form of an entry that the digest covers and the index contains.
func (e *treeEntry) line(b []byte) []byte {
	b = strconv.AppendUint(b, uint64(e.mode), 8)
	b = strconv.AppendInt(append(b, ' '), e.size, 10)
	b = strconv.AppendInt(append(b, ' '), e.modified, 10)
	b = appendQuoted(append(b, ' '), e.path)
	return appendQuoted(append(b, ' '), e.target)
}

// appendQuoted is strconv.AppendQuote, which takes most of the time of a digest, with a shortcut for
// strings that need no escapes.
func appendQuoted(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return strconv.AppendQuote(b, s)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

func (e *treeEntry) regular() bool { return e.mode&unix.S_IFMT == unix.S_IFREG }

func (e *treeEntry) directory() bool { return e.mode&unix.S_IFMT == unix.S_IFDIR }

// treeFile returns the path of the index of the newest tree, and treeNote that of the tree itself.
func treeFile(dir string) string { return filepath.Join(dir, "tree.gz") }
func treeNote(dir string) string { return filepath.Join(dir, "tree.json") }

// maxTreeNote bounds the bytes that are read of a note.
const maxTreeNote = 4 << 10

// takeTree describes everything in the workspace root and writes the index to dir. A workspace that
// exceeds the bounds gets no digest, and Unchecked has the reason.
func takeTree(ctx context.Context, root, dir string) (manifest.Tree, error) {
	return List(ctx, root).Take(ctx, dir)
}

// Listing is the content of a workspace at one time.
type Listing struct {
	root    string
	entries []treeEntry
	digest  string // of the entries
	err     error
	known   map[string]*entry // of the index of changes; nil if the index must be read
}

// Digest identifies the listed workspace in a manifest.Tree; empty if it could not be listed.
func (l *Listing) Digest() string {
	if l.err != nil {
		return ""
	}
	return l.digest
}

// List lists everything in the workspace root.
func List(ctx context.Context, root string) *Listing { return list(ctx, root, maxTreeEntries) }

func list(ctx context.Context, root string, limit int) *Listing {
	l := &Listing{root: root}
	l.entries, l.err = listTree(ctx, root, limit)
	l.digest = digestOf(l.entries)
	return l
}

// Take is takeTree for a listing, provided that nothing has changed in the workspace since.
func (l *Listing) Take(ctx context.Context, dir string) (manifest.Tree, error) {
	if l.err != nil {
		return manifest.Tree{Unchecked: l.err.Error()}, nil // reported, but it does not prevent hibernation
	}
	root, entries := l.root, l.entries
	t := manifest.Tree{Entries: int64(len(entries)), Digest: l.digest}
	if earlier, ok := earlierTree(dir); ok && earlier.Digest == t.Digest { // most sessions sleep with the workspace that they woke with
		return earlier, nil
	}
	known := l.known
	if known == nil {
		known = Open(root, dir).s.Entries
	}
	addSums(ctx, root, entries, known)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return t, err
	}
	f, err := os.CreateTemp(dir, ".tree-*")
	if err != nil {
		return t, err
	}
	defer os.Remove(f.Name()) // already renamed on success
	index := sha256.New()
	compressed, _ := gzip.NewWriterLevel(f, gzip.HuffmanOnly) // the level is valid; sums compress no better otherwise
	w := bufio.NewWriterSize(io.MultiWriter(compressed, index), 64<<10)
	var line []byte
	for i := range entries {
		e := &entries[i]
		t.Bytes += e.size
		line = append(e.line(line[:0]), '\n')
		sum := e.sum
		if sum == "" {
			sum = "-"
		}
		_, _ = w.WriteString(sum) // Flush returns the error
		_ = w.WriteByte(' ')
		_, _ = w.Write(line)
	}
	if err := errors.Join(w.Flush(), compressed.Close(), f.Sync(), f.Close()); err != nil {
		return t, fmt.Errorf("write the index of the workspace: %w", err)
	}
	// A note never describes another index.
	if err := os.Remove(treeNote(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t, fmt.Errorf("write the index of the workspace: %w", err)
	}
	if err := os.Rename(f.Name(), treeFile(dir)); err != nil {
		return t, fmt.Errorf("write the index of the workspace: %w", err)
	}
	t.Index = hex.EncodeToString(index.Sum(nil))
	note, err := json.Marshal(t)
	if err == nil {
		err = os.WriteFile(treeNote(dir), note, 0o600)
	}
	if err != nil { // then the next seal writes the index again
		_ = os.Remove(treeNote(dir))
	}
	return t, nil
}

// earlierTree returns the tree whose index is in dir; false if that is not known. The index of an equal tree need not be written
// again: it has the sums of the same sizes and times.
func earlierTree(dir string) (t manifest.Tree, ok bool) {
	note, err := regular.Read(treeNote(dir), maxTreeNote)
	if err != nil || json.Unmarshal(note, &t) != nil || t.Digest == "" {
		return manifest.Tree{}, false
	}
	info, err := os.Lstat(treeFile(dir))
	return t, err == nil && info.Mode().IsRegular()
}

// forgetTree makes the next tree write its index even if its digest is the same.
func forgetTree(dir string) { _ = os.Remove(treeNote(dir)) } // there may be none

// digestOf covers the entries of a workspace, as they are in its index without the sums of contents.
func digestOf(entries []treeEntry) string {
	digest := sha256.New()
	var lines []byte
	for i := range entries {
		if lines = append(entries[i].line(lines), '\n'); len(lines) >= 16<<10 {
			digest.Write(lines)
			lines = lines[:0]
		}
	}
	digest.Write(lines)
	return hex.EncodeToString(digest.Sum(nil))
}

// addSums sets the checksums from the index of changes, and computes those of the newest other
// files.
func addSums(ctx context.Context, root string, entries []treeEntry, known map[string]*entry) {
	var without []*treeEntry
	for i := range entries {
		e := &entries[i]
		if !e.regular() {
			continue
		}
		if k := known[e.path]; k != nil && k.SHA256 != "" && !k.Racy && k.Stat.Size == e.size && k.Stat.Modified == e.modified {
			e.sum = k.SHA256
			continue
		}
		without = append(without, e)
	}
	slices.SortFunc(without, func(a, b *treeEntry) int { return cmp.Compare(b.modified, a.modified) })
	dir, err := os.OpenRoot(root)
	if err != nil {
		return // without any checksums
	}
	defer dir.Close() // opened only for reading
	room := int64(maxSummedBytes)
	for _, e := range without[:min(len(without), maxSummed)] {
		if e.size > room || ctx.Err() != nil {
			continue
		}
		room -= e.size
		if sum, err := sumIn(dir, e.path); err == nil { // otherwise its checksum stays unknown
			e.sum = sum
		}
	}
}

// CompareTree compares the workspace root with a tree whose index is in dir. It compares type,
// size, permissions, modification time and link target, and the content only of files whose
// modification time differs.
func CompareTree(ctx context.Context, root, dir string, want manifest.Tree) manifest.TreeDifference {
	return compareTree(ctx, root, dir, want, maxTreeEntries)
}

func compareTree(ctx context.Context, root, dir string, want manifest.Tree, limit int) manifest.TreeDifference {
	if want.Digest == "" {
		return unchecked(want.Unchecked)
	}
	entries, err := listTree(ctx, root, limit)
	if err != nil {
		return unchecked(err.Error())
	}
	if digestOf(entries) == want.Digest {
		return manifest.TreeDifference{}
	}
	index, err := readTree(dir, want)
	if err != nil { // the workspace differs in an unknown place
		return manifest.TreeDifference{Paths: []string{root + " (differs; its index cannot be read)"}}
	}
	c := &comparison{ctx: ctx, root: root, room: hashBudget}
	for _, e := range entries {
		was, ok := index[e.path]
		delete(index, e.path)
		if !ok {
			c.differs(e.path, " (added)")
			continue
		}
		c.compare(was, e)
	}
	for path := range index {
		c.differs(path, "")
	}
	return c.result()
}

func unchecked(why string) manifest.TreeDifference {
	if why == "" {
		why = "no index"
	}
	return manifest.TreeDifference{Unchecked: []string{"workspace: " + why}}
}

type comparison struct {
	ctx       context.Context //nolint:containedctx // lives for one call
	root      string
	room      int64 // of content that may still be read
	paths     []string
	unchecked int // files whose content was not compared
}

func (c *comparison) differs(path, remark string) {
	path = filepath.Join(c.root, path)
	if excess := len(path) - maxShownPath; excess > 0 { // the end is more informative than the middle
		path = path[:maxShownPath/4] + "…" + path[maxShownPath/4+excess:]
	}
	c.paths = append(c.paths, strings.ToValidUTF8(path, "\uFFFD")+remark)
}

func (c *comparison) compare(was, is treeEntry) {
	switch {
	case was.mode != is.mode || was.size != is.size || was.target != is.target:
		c.differs(is.path, " (changed)")
	case sameTime(was.modified, is.modified):
	case !is.regular():
		c.differs(is.path, " (changed)")
	case was.sum == "" || is.size > c.room || c.ctx.Err() != nil:
		c.unchecked++
	default:
		c.room -= is.size
		if sum, err := sumOf(c.root, is.path); err != nil || sum != was.sum {
			c.differs(is.path, " (changed)")
		}
	}
}

// sameTime also accepts a time whose fraction of a second was lost in the snapshot.
func sameTime(was, is int64) bool {
	second := int64(time.Second)
	return was == is || is%second == 0 && is/second == was/second
}

func sumOf(root, path string) (string, error) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return "", err
	}
	defer dir.Close() // opened only for reading
	return sumIn(dir, path)
}

func sumIn(dir *os.Root, path string) (string, error) {
	f, err := openFile(dir, path)
	if err != nil {
		return "", err
	}
	defer f.Close() // opened only for reading
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func (c *comparison) result() manifest.TreeDifference {
	var d manifest.TreeDifference
	slices.Sort(c.paths)
	d.Paths = c.paths
	if len(d.Paths) > maxDifferences {
		d.Paths, d.More = d.Paths[:maxDifferences], len(d.Paths)-maxDifferences
	}
	if c.unchecked > 0 {
		d.Unchecked = []string{fmt.Sprintf("workspace: content of %d files whose modification time differs", c.unchecked)}
	}
	return d
}

// readTree reads the index of a tree.
func readTree(dir string, want manifest.Tree) (map[string]treeEntry, error) {
	f, err := regular.Open(treeFile(dir))
	if err != nil {
		return nil, err
	}
	defer f.Close() // opened only for reading
	compressed, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	entries := make(map[string]treeEntry, min(want.Entries, maxTreeEntries))
	if err := parseTree(io.TeeReader(compressed, sum), entries); err != nil {
		return nil, err
	}
	if hex.EncodeToString(sum.Sum(nil)) != want.Index {
		return nil, errors.New("the index is of another tree")
	}
	return entries, nil
}

func parseTree(r io.Reader, entries map[string]treeEntry) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<10)
	for lines.Scan() {
		e, err := parseEntry(lines.Bytes())
		if err != nil {
			return err
		}
		entries[e.path] = e
	}
	return lines.Err()
}

func parseEntry(line []byte) (e treeEntry, err error) {
	fields := bytes.SplitN(line, []byte{' '}, 5)
	if len(fields) != 5 {
		return e, fs.ErrInvalid
	}
	if e.sum = string(fields[0]); e.sum == "-" {
		e.sum = ""
	}
	mode, modeErr := strconv.ParseUint(string(fields[1]), 8, 32)
	size, sizeErr := strconv.ParseInt(string(fields[2]), 10, 64)
	modified, timeErr := strconv.ParseInt(string(fields[3]), 10, 64)
	if err := errors.Join(modeErr, sizeErr, timeErr); err != nil {
		return e, err
	}
	e.mode, e.size, e.modified = uint32(mode), size, modified
	quoted, err := strconv.QuotedPrefix(string(fields[4]))
	if err != nil || len(quoted) >= len(fields[4]) {
		return e, fs.ErrInvalid
	}
	path, pathErr := strconv.Unquote(quoted)
	target, targetErr := strconv.Unquote(string(fields[4][len(quoted)+1:]))
	e.path, e.target = path, target
	return e, errors.Join(pathErr, targetErr)
}
