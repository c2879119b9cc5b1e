package portable

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"
)

// InvalidError is an error in the content of an archive.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *InvalidError) Unwrap() error { return e.Err }

func invalid(format string, args ...any) error { return &InvalidError{fmt.Errorf(format, args...)} }

// Read reads an archive to its end and returns its manifest. It calls take for each entry except
// the manifest, in order, with its name, mode, link and content; Path and SHA256 are only in the
// manifest. The entries must not be used until Read returns without an error. *InvalidError
// describes an invalid archive.
func Read(r io.Reader, take func(Entry, io.Reader) error) (Manifest, error) {
	limited := &limitedReader{r: r, left: MaxArchiveBytes, what: "the archive", most: MaxArchiveBytes}
	buffered := bufio.NewReaderSize(limited, 64<<10)
	zip, err := gzip.NewReader(buffered)
	if err != nil {
		return Manifest{}, archiveError(err, "the archive is not compressed with gzip")
	}
	zip.Multistream(false)
	// Headers count too, because each entry has a few blocks of them.
	const most = MaxBytes + maxManifest + maxEntries*8<<10
	a := &archive{tar: tar.NewReader(&limitedReader{r: zip, left: most, what: "the content of the archive", most: most}), seen: map[string]Entry{}, dirs: map[string]bool{}}
	m, err := a.read(take)
	if err != nil {
		return Manifest{}, err
	}
	if _, err := io.Copy(io.Discard, zip); err != nil { // the checksum
		return Manifest{}, archiveError(err, "the end of the archive is damaged")
	}
	if _, err := buffered.ReadByte(); err == nil {
		return Manifest{}, invalid("the archive has data after its end")
	} else if !errors.Is(err, io.EOF) {
		return Manifest{}, archiveError(err, "the end of the archive cannot be read")
	}
	return m, nil
}

// archiveError distinguishes errors of the archive from errors of its source.
func archiveError(err error, what string) error {
	if _, ok := errors.AsType[*InvalidError](err); ok {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return invalid("the archive ends too early: it is truncated or not an archive")
	}
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, tar.ErrHeader) || strings.HasPrefix(err.Error(), "flate: ") {
		return invalid("%s: %w", what, err)
	}
	return err
}

// limitedReader returns an error at a limit instead of io.EOF.
type limitedReader struct {
	r          io.Reader
	left, most int64
	what       string
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		var one [1]byte
		if n, err := l.r.Read(one[:]); n == 0 {
			return 0, err
		}
		return 0, invalid("%s has more than %d bytes", l.what, l.most)
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

// archive is an archive that is being read.
type archive struct {
	tar   *tar.Reader
	seen  map[string]Entry
	dirs  map[string]bool // directories of the workspace entries so far
	order []string
	bytes int64
	stage int // of the entries, which come in their order
}

func (a *archive) read(take func(Entry, io.Reader) error) (Manifest, error) {
	for {
		h, err := a.tar.Next()
		if errors.Is(err, io.EOF) {
			return Manifest{}, invalid("the archive has no %s: it is truncated or not an archive", manifestEntry)
		}
		if err != nil {
			return Manifest{}, archiveError(err, "the archive is not a tar file")
		}
		if h.Name == manifestEntry {
			return a.manifest(h)
		}
		e, err := a.entry(h)
		if err != nil {
			return Manifest{}, err
		}
		sum := sha256.New()
		content := io.TeeReader(a.tar, sum)
		if h.Typeflag == tar.TypeSymlink {
			content = io.TeeReader(strings.NewReader(h.Linkname), sum)
		}
		if err := take(e, content); err != nil {
			return Manifest{}, archiveError(err, e.Name)
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			return Manifest{}, archiveError(err, e.Name)
		}
		e.SHA256 = hex.EncodeToString(sum.Sum(nil))
		a.seen[e.Name] = e
		a.order = append(a.order, e.Name)
	}
}

// entry checks the header of an entry.
func (a *archive) entry(h *tar.Header) (Entry, error) {
	e := Entry{Name: h.Name, Mode: fs.FileMode(h.Mode).Perm(), Size: h.Size}
	if len(a.order) == maxEntries {
		return e, invalid("the archive has more than %d entries", maxEntries)
	}
	if _, twice := a.seen[h.Name]; twice {
		return e, invalid("the archive has the entry %q twice", h.Name)
	}
	stage := 0
	p, inWorkspace := e.WorkspacePath()
	switch n, isAgent := strings.CutPrefix(h.Name, agentDir); {
	case h.Name == RepositoryEntry:
	case inWorkspace:
		stage = 1
		if err := checkPath(p); err != nil {
			return e, invalid("%w", err)
		}
		if err := a.checkParents(p); err != nil {
			return e, err
		}
	case isAgent:
		stage = 2
		if number, err := strconv.Atoi(n); err != nil || strconv.Itoa(number) != n || number < 0 {
			return e, invalid("the archive has an unknown entry %q", h.Name)
		}
	case h.Name == ConversationEntry:
		stage = 3
	default:
		return e, invalid("the archive has an unknown entry %q", h.Name)
	}
	if stage < a.stage {
		return e, invalid("the entry %q of the archive is not in its place", h.Name)
	}
	a.stage = stage
	switch {
	case h.Typeflag == tar.TypeSymlink && inWorkspace:
		if !LinkStaysWithin(p, h.Linkname) {
			return e, invalid("the link %q leads out of the workspace", p)
		}
		e.Link, e.Mode, e.Size = h.Linkname, 0, 0
	case h.Typeflag != tar.TypeReg:
		return e, invalid("the entry %q is neither a file nor a link", h.Name)
	case !inWorkspace:
		e.Mode = 0
	}
	if a.bytes += e.Size; e.Size < 0 || a.bytes > MaxBytes {
		return e, invalid("the content of the archive has more than %d bytes", int64(MaxBytes))
	}
	return e, nil
}

// checkParents refuses a file below a file or a link.
func (a *archive) checkParents(p string) error {
	if a.dirs[p] {
		return invalid("the archive has an entry below %q, which is not a directory", p)
	}
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if _, ok := a.seen[workspaceDir+dir]; ok {
			return invalid("the archive has an entry below %q, which is not a directory", dir)
		}
		a.dirs[dir] = true
	}
	return nil
}

func (a *archive) manifest(h *tar.Header) (Manifest, error) {
	if h.Typeflag != tar.TypeReg || h.Size > maxManifest {
		return Manifest{}, invalid("%s is not a file of at most %d bytes", manifestEntry, maxManifest)
	}
	data, err := io.ReadAll(a.tar)
	if err != nil {
		return Manifest{}, archiveError(err, manifestEntry)
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return Manifest{}, invalid("%s: %w", manifestEntry, err)
	}
	if err := m.check(); err != nil {
		return Manifest{}, invalid("%w", err)
	}
	if err := a.compare(m.Entries); err != nil {
		return Manifest{}, err
	}
	if _, err := a.tar.Next(); err == nil {
		return Manifest{}, invalid("the archive has an entry after %s", manifestEntry)
	} else if !errors.Is(err, io.EOF) {
		return Manifest{}, archiveError(err, "the end of the archive is damaged")
	}
	return m, nil
}

// compare checks that the manifest lists the entries that were read.
func (a *archive) compare(listed []Entry) error {
	if len(listed) != len(a.order) {
		return invalid("%s lists %d entries, and the archive has %d", manifestEntry, len(listed), len(a.order))
	}
	paths := map[string]bool{}
	for i, want := range listed {
		got := a.seen[a.order[i]]
		switch {
		case want.Name != got.Name:
			return invalid("%s lists %q where the archive has %q", manifestEntry, want.Name, got.Name)
		case want.Size != got.Size:
			return invalid("%q has %d bytes, and its manifest says %d", want.Name, got.Size, want.Size)
		case want.SHA256 != got.SHA256:
			return invalid("%q is not what its manifest says: its SHA-256 is another one", want.Name)
		case want.Link != got.Link || want.Mode.Perm() != want.Mode:
			return invalid("%q is not what its manifest says", want.Name)
		}
		if !got.AgentFile() {
			if want.Path != "" {
				return invalid("%s gives %q the path %q", manifestEntry, want.Name, want.Path)
			}
			continue
		}
		if err := checkAgentPath(want.Path); err != nil {
			return invalid("%s: %w", manifestEntry, err)
		}
		if paths[want.Path] {
			return invalid("%s lists the path %q twice", manifestEntry, want.Path)
		}
		paths[want.Path] = true
	}
	return nil
}

// checkAgentPath returns an error unless a path is an absolute and clean path of a file.
func checkAgentPath(p string) error {
	if len(p) > maxPathBytes || !path.IsAbs(p) || path.Clean(p) != p || p == "/" || !utf8.ValidString(p) || strings.ContainsRune(p, 0) {
		return fmt.Errorf("the path %.80q of an agent's file must be absolute and clean, of at most %d bytes", p, maxPathBytes)
	}
	return nil
}
