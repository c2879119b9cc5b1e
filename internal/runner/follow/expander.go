package follow

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/bmatcuk/doublestar/v4"
)

const (
	// maxExpandedDirs bounds the directories whose changes an expander checks. With more, it reads
	// them each time.
	maxExpandedDirs = 256
	// settledAge is the age from which on the modification time of a directory shows each later
	// change. The times of file systems are as coarse as a tick of the kernel, or a second.
	settledAge = 2 * time.Second
)

// expander expands patterns again and again. It reads the directories of the patterns only if one of
// them may have changed since: polls rarely find a new file, and reading the directories costs most of
// a poll. Links share it, so that each need not begin with a read. It is safe for concurrent use.
type expander struct {
	mu       sync.Mutex
	patterns []string
	found    []string
	dirs     map[string]dirState // below the patterns' fixed parts
	settled  bool                // found is valid while dirs are unchanged
	many     bool                // the patterns have more than maxExpandedDirs directories
	// notes and reads count how often directories were noted, and read for matching files.
	notes, reads int
}

// dirState is a directory as of the last read; the zero value is a missing one.
type dirState struct {
	inode   uint64
	written time.Time
}

// expand is Expand. With reread, it reads the directories in any case, though only for the files that
// match. The caller must not change the result.
func (e *expander) expand(patterns []string, reread bool) []string {
	if !e.mu.TryLock() { // the previous link is still reading
		return Expand(patterns)
	}
	defer e.mu.Unlock()
	same := slices.Equal(patterns, e.patterns)
	if same && e.settled && e.unchanged() {
		if !reread {
			return e.found
		}
		found := Expand(patterns)
		e.reads++
		if slices.Equal(found, e.found) {
			return e.found
		}
		// A file appeared just now, or the file system does not show each change.
	}
	if !same {
		e.patterns, e.many = slices.Clone(patterns), false
	}
	e.settled = !e.many && e.note(time.Now()) // before the read, so that a later change is noticed
	e.notes++
	e.found = Expand(patterns)
	e.reads++
	return e.found
}

// unchanged reports whether no file has appeared in the directories, or disappeared.
func (e *expander) unchanged() bool {
	for dir, before := range e.dirs {
		info, err := os.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) && before == (dirState{}) {
			continue
		}
		if err != nil || !info.IsDir() || inodeOf(info) != before.inode || !info.ModTime().Equal(before.written) {
			return false
		}
	}
	return true
}

// note records the directories and reports whether their modification times will show each change.
func (e *expander) note(now time.Time) (settled bool) {
	e.dirs, settled = map[string]dirState{}, true
	for _, p := range e.patterns {
		if !filepath.IsAbs(p) {
			continue
		}
		base, _ := doublestar.SplitPattern(filepath.Clean(p))
		err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
			switch {
			case path == base && errors.Is(err, fs.ErrNotExist):
				e.dirs[path] = dirState{}
				return nil
			case err != nil:
				return err
			case d.Type()&fs.ModeSymlink != 0: // the directory of a link does not change with its target
				return errUnsettled
			case !d.IsDir():
				return nil
			case len(e.dirs) >= maxExpandedDirs:
				e.many = true
				return errUnsettled
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			if age := now.Sub(info.ModTime()); age < settledAge { // also a time in the future
				settled = false
			}
			e.dirs[path] = dirState{inode: inodeOf(info), written: info.ModTime()}
			return nil
		})
		settled = settled && err == nil
	}
	return settled
}

// errUnsettled ends a walk of directories whose changes cannot be checked.
var errUnsettled = errors.New("changes are not visible")
