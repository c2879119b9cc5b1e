package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Listers is how many directories are read in parallel, if the process uses as many processors.
const Listers = 2

// tooMuchError ends a listing that exceeds a bound.
type tooMuchError string

func (e tooMuchError) Error() string { return string(e) }

// listTree lists everything below root, including .git and ignored files, in a fixed order. It
// follows no symbolic links. It returns tooMuchError if a bound is exceeded.
func listTree(ctx context.Context, root string, limit int) ([]treeEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, treeBudget)
	defer cancel()
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	l := &lister{ctx: ctx, limit: int64(limit)}
	var d directory
	l.crew.gather(Listers-1, func() { l.read(fd, "", 0, &d) })
	if err := l.failed.Load(); err != nil {
		return nil, *err
	}
	return d.appendTo(make([]treeEntry, 0, l.count.Load())), nil
}

type lister struct {
	ctx    context.Context //nolint:containedctx // lives for one call
	limit  int64
	count  atomic.Int64 // number of entries
	crew   crew
	failed atomic.Pointer[error] // the first failure, after which no other directory is read
}

// directory is the content of a directory and of those below it.
type directory struct {
	entries []treeEntry
	tracked []tracked    // of a walk
	below   []*directory // for the entries that are directories
}

// appendTo appends the entries of a directory, each followed by the entries below it.
func (d *directory) appendTo(out []treeEntry) []treeEntry {
	below := d.below
	for i := range d.entries {
		out = append(out, d.entries[i])
		if d.entries[i].directory() {
			out = below[0].appendTo(out)
			below = below[1:]
		}
	}
	return out
}

// read lists the directory fd, and closes it.
func (l *lister) read(fd int, rel string, depth int, into *directory) {
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close() // opened only for reading
	if l.failed.Load() != nil {
		return
	}
	if err := l.list(fd, f, rel, depth, into); err != nil {
		l.failed.CompareAndSwap(nil, &err)
	}
}

func (l *lister) list(fd int, f *os.File, rel string, depth int, into *directory) error {
	if depth > maxTreeDepth {
		return tooMuchError(fmt.Sprintf("deeper than %d directories", maxTreeDepth))
	}
	names, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(names)
	into.entries = make([]treeEntry, 0, len(names))
	for _, name := range names {
		n := l.count.Add(1)
		if n > l.limit {
			return tooMuchError(fmt.Sprintf("more than %d files and directories", l.limit))
		}
		if n%256 == 0 && l.ctx.Err() != nil {
			return tooMuchError(fmt.Sprintf("could not be listed within %s", treeBudget))
		}
		e, err := statEntry(fd, name, rel)
		if errors.Is(err, unix.ENOENT) {
			l.count.Add(-1)
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
		into.entries = append(into.entries, e)
		if !e.directory() {
			continue
		}
		child, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: e.path, Err: err}
		}
		below := &directory{}
		into.below = append(into.below, below)
		read := func() { l.read(child, e.path, depth+1, below) }
		if !l.crew.add(read) {
			read()
		}
		if err := l.failed.Load(); err != nil {
			return *err
		}
	}
	return nil
}

func statEntry(dir int, name, rel string) (treeEntry, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return treeEntry{}, &os.PathError{Op: "stat", Path: rel + "/" + name, Err: err}
	}
	path := name
	if rel != "" {
		path = rel + "/" + name
	}
	return entryOf(dir, name, path, &st)
}

// entryOf returns the entry of a name in the directory dir, whose metadata is st.
func entryOf(dir int, name, path string, st *unix.Stat_t) (treeEntry, error) {
	e := treeEntry{path: path, mode: st.Mode, size: st.Size, modified: st.Mtim.Nano()}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		e.size, e.modified = 0, 0
	case unix.S_IFLNK:
		b := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(dir, name, b)
		if err != nil {
			return e, &os.PathError{Op: "readlink", Path: e.path, Err: err}
		}
		e.target = string(b[:n])
	case unix.S_IFCHR, unix.S_IFBLK:
		e.target = strconv.FormatUint(st.Rdev, 10)
	}
	return e, nil
}

// gathering collects a Listing while the tracked files are listed. Its methods do nothing on a nil
// gathering, and after a failure: a listing is complete, or has the reason why it is not. Its
// entries are in the order of listTree.
type gathering struct {
	limit   int64
	until   time.Time
	count   atomic.Int64 // number of entries
	failed  atomic.Pointer[error]
	listed  chan struct{} // closed when the fields below are set; nil before the end
	entries []treeEntry
	digest  string // of the entries
}

func newGathering() *gathering {
	return &gathering{limit: maxTreeEntries, until: time.Now().Add(treeBudget)}
}

// wanted reports whether entries are still being collected.
func (g *gathering) wanted() bool { return g != nil && g.failed.Load() == nil }

func (g *gathering) fail(err error) {
	if g != nil {
		g.failed.CompareAndSwap(nil, &err) // the first failure is the reason
	}
}

// enter begins a directory.
func (g *gathering) enter(depth int) {
	if depth > maxTreeDepth {
		g.fail(tooMuchError(fmt.Sprintf("deeper than %d directories", maxTreeDepth)))
	}
}

// unstatted handles a name whose metadata could not be read.
func (g *gathering) unstatted(rel, name string, err error) {
	if !errors.Is(err, unix.ENOENT) { // otherwise removed meanwhile
		g.fail(&os.PathError{Op: "stat", Path: rel + "/" + name, Err: err})
	}
}

// add adds a name in the directory dir.
func (g *gathering) add(dir int, name, path string, st *unix.Stat_t, to *directory) {
	if !g.wanted() {
		return
	}
	switch n := g.count.Add(1); {
	case n > g.limit:
		g.fail(tooMuchError(fmt.Sprintf("more than %d files and directories", g.limit)))
	case n%256 == 0 && time.Now().After(g.until):
		g.fail(tooMuchError(fmt.Sprintf("could not be listed within %s", treeBudget)))
	default:
		e, err := entryOf(dir, name, path, st)
		switch {
		case errors.Is(err, unix.ENOENT): // a link that was removed meanwhile
			g.count.Add(-1)
		case err != nil:
			g.fail(err)
		default:
			to.entries = append(to.entries, e)
		}
	}
}

// found ends the collection with the content of the workspace, which must not change. The entries are
// put together while the caller continues. Only the first call counts.
func (g *gathering) found(d *directory) {
	if !g.wanted() || g.listed != nil {
		return
	}
	g.listed = make(chan struct{})
	go func() {
		defer close(g.listed)
		g.entries = d.appendTo(make([]treeEntry, 0, g.count.Load()))
		g.digest = digestOf(g.entries)
	}()
}

// listing returns the entries collected for the workspace root. known are the entries of the index
// of changes.
func (g *gathering) listing(root string, known map[string]*entry) *Listing {
	l := &Listing{root: root, known: known}
	if err := g.failed.Load(); err != nil {
		l.err = *err
	}
	if g.listed != nil {
		<-g.listed
		l.entries, l.digest = g.entries, g.digest
	}
	return l
}
