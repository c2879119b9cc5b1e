package workspace

import (
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/runner/regular"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

const (
	maxDirs  = 20_000
	maxDepth = 100
)

// stat is the metadata of a file.
type stat struct {
	Size     int64  `json:"size"`
	Modified int64  `json:"mtime"` // in Unix nanoseconds
	Changed  int64  `json:"ctime"`
	Inode    uint64 `json:"ino"`
	Mode     uint32 `json:"mode"` // permission bits
}

func statOf(st *unix.Stat_t) stat {
	return stat{
		Size: st.Size, Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano(), Inode: st.Ino, Mode: st.Mode & 0o777,
	}
}

// racy reports whether a write after now could leave the file with the same times, because the
// clock of file systems has the resolution of a tick.
func (s stat) racy(now time.Time) bool {
	return now.UnixNano()-max(s.Modified, s.Changed) < int64(100*time.Millisecond)
}

// walker lists the files of a workspace.
type walker struct {
	limit int
	dir   func(path string) // called before a directory of tracked files is read, by several goroutines; may be nil
	root  string
	all   *gathering // lists everything alongside; nil for none

	content directory    // of the workspace
	tracked atomic.Int64 // number of files, including those beyond the limit
	dirs    atomic.Int64 // number of directories of tracked files, including those beyond the limit
	bounded atomic.Bool  // not everything was listed
	crew    *crew        // reads directories at the same time; nil for one reader
}

// tracked is a tracked file, or a directory with tracked files.
type tracked struct {
	path  string
	stat  stat
	below *directory // nil for a file
}

// walk lists the tracked files below root, as described in the package documentation.
func walk(root string, limit int, dir func(path string)) (*walker, error) {
	return walkAll(root, limit, dir, nil, false)
}

// walkAll is walk that also lists everything else, if all is not nil. With waited set, it reads up to
// Listers directories at the same time, unless that could change which files are tracked.
func walkAll(root string, limit int, dir func(path string), all *gathering, waited bool) (*walker, error) {
	w, err := walkOnce(root, limit, dir, all, waited)
	if err != nil {
		return nil, err
	}
	all.found(&w.content)
	if waited && w.beyond() {
		return walkOnce(root, limit, dir, nil, false)
	}
	return w, nil
}

func walkOnce(root string, limit int, dir func(path string), all *gathering, waited bool) (*walker, error) {
	w := &walker{limit: limit, dir: dir, root: root, all: all}
	if dir != nil {
		dir(root)
	}
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	read := func() { w.read(fd, "", nil, false, true, 0, &w.content) }
	if waited {
		w.crew = &crew{}
		w.crew.gather(Listers-1, read)
	} else {
		read()
	}
	return w, nil
}

// beyond reports whether which files were listed depends on the order in which directories were read,
// because a bound of the whole workspace was exceeded.
func (w *walker) beyond() bool {
	return w.dirs.Load() > maxDirs || w.tracked.Load() > int64(w.limit) && !w.all.wanted()
}

// each calls visit for the tracked files, up to the limit. A file that was renamed during the walk may occur twice.
func (w *walker) each(visit func(path string, st stat)) {
	left := w.limit
	w.visit(&w.content, &left, visit)
}

func (w *walker) visit(d *directory, left *int, visit func(path string, st stat)) {
	for _, t := range d.tracked {
		switch {
		case t.below != nil:
			w.visit(t.below, left, visit)
		case *left == 0:
			w.bounded.Store(true)
			return
		default:
			*left--
			visit(t.path, t.stat)
		}
	}
}

// read lists the directory fd, and closes it. It lists an untracked directory only for all.
func (w *walker) read(fd int, rel string, above ignores, inRepository, tracks bool, depth int, into *directory) {
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close() // opened only for reading
	w.all.enter(depth)
	names, err := f.Readdirnames(-1)
	if err != nil {
		w.all.fail(err)
		return // removed meanwhile, or unreadable: treated as empty
	}
	slices.Sort(names)
	if tracks {
		inRepository = inRepository || slices.Contains(names, ".git")
	}
	if tracks && inRepository {
		above = slices.Clip(above)
		if slices.Contains(names, ".git") {
			above = append(above, w.rules(fd, rel, ".git/info/exclude"))
		}
		if slices.Contains(names, ".gitignore") {
			above = append(above, w.rules(fd, rel, ".gitignore"))
		}
	}
	if tracks {
		into.tracked = make([]tracked, 0, len(names))
	}
	if w.all.wanted() {
		into.entries = make([]treeEntry, 0, len(names))
	}
	for _, name := range names {
		track := tracks && name != ".git" && utf8.ValidString(name)
		if !track && !w.all.wanted() {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			w.all.unstatted(rel, name, err)
			continue
		}
		p := name
		if rel != "" {
			p = rel + "/" + name
		}
		w.all.add(fd, name, p, &st, into)
		track = track && len(p) <= workspacefile.MaxPath
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			if !track || above.ignored(p, false) {
				continue
			}
			if w.tracked.Add(1) > int64(w.limit) && !w.all.wanted() {
				w.bounded.Store(true)
				tracks = false
				continue
			}
			into.tracked = append(into.tracked, tracked{path: p, stat: statOf(&st)})
		case unix.S_IFDIR:
			track = track && name != "node_modules" && p != workspacefile.AttachmentDir && !above.ignored(p, true)
			if track && (depth >= maxDepth || w.dirs.Add(1) > maxDirs) {
				w.bounded.Store(true)
				track = false
			}
			if !track && !w.all.wanted() {
				continue
			}
			if track && w.dir != nil {
				w.dir(path.Join(w.root, p))
			}
			child, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				w.all.fail(&os.PathError{Op: "open", Path: p, Err: err})
				continue
			}
			below := &directory{}
			into.below = append(into.below, below)
			if track {
				into.tracked = append(into.tracked, tracked{below: below})
			}
			read := func() { w.read(child, p, above, inRepository, track, depth+1, below) }
			if w.crew == nil || !w.crew.add(read) {
				read()
			}
		}
	}
}

// rules reads an ignore file of the directory fd. An unreadable file ignores nothing.
func (w *walker) rules(fd int, rel, name string) rules {
	f, err := regular.OpenAt(fd, name, unix.O_NOFOLLOW)
	if err != nil {
		return rules{dir: rel}
	}
	defer f.Close() // opened only for reading
	text, err := io.ReadAll(io.LimitReader(f, maxIgnoreBytes))
	if err != nil && !errors.Is(err, io.EOF) {
		return rules{dir: rel}
	}
	return parseRules(rel, string(text))
}
