package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// Scan is what a walk through a workspace finds. It does not need the index.
type Scan struct {
	root   string
	limit  int
	watch  func(dir string)
	all    *gathering // nil if only tracked files are listed
	waited bool       // a session waits for it
	found  *walker    // nil until the workspace is walked through
}

// NewScan lists everything in the workspace root. watch is that of Pass.
func NewScan(root string, watch func(dir string)) (*Scan, error) {
	s := &Scan{root: root, limit: workspacefile.MaxWatched, watch: watch, all: newGathering(), waited: true}
	_, err := s.walk()
	return s, err
}

func (s *Scan) walk() (*walker, error) {
	if s.found != nil {
		return s.found, nil
	}
	w, err := walkAll(s.root, s.limit, s.watch, s.all, s.waited)
	if errors.Is(err, fs.ErrNotExist) {
		w, err = &walker{}, nil
		s.all.found(&w.content)
	}
	if err != nil {
		return nil, fmt.Errorf("look through the workspace: %w", err)
	}
	s.found = w
	return w, nil
}

// Digest identifies the workspace in a manifest.Tree; empty if it could not be listed.
func (s *Scan) Digest() string { return s.all.listing(s.root, nil).Digest() }

// IsKept reports whether an index is stored in dir.
func IsKept(dir string) bool {
	_, err := os.Lstat(savedFile(dir))
	_, legacyErr := os.Lstat(legacyFile(dir))
	return err == nil || legacyErr == nil
}
