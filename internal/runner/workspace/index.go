package workspace

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

const (
	// maxHashed bounds the size of files that are read to detect changes. Larger files are compared
	// by size and time.
	maxHashed = 64 << 20
	// A file that keeps changing is reported after a second, then after two, and so on up to half a
	// minute, so that a growing log is not sent a hundred times.
	minHold, maxHold = time.Second, 30 * time.Second
	// maxSaved and maxGitIndex bound the bytes that are read of the stored index and of git's
	// index.
	maxSaved, maxGitIndex = 256 << 20, 256 << 20
)

// Index is the state of a workspace as reported to a worker. It is used by one goroutine.
type Index struct {
	root  string // the workspace
	dir   string // directory of the index and the copies of first contents
	limit int    // maximum number of files

	s       saved
	used    int64 // bytes of reported content
	unsaved bool  // it differs from the stored index
	todo    []string
	gone    map[string]bool // those of todo that are no longer tracked
	force   bool            // the current pass holds nothing back
	held    bool            // something was held back
	kept    bool            // it was read from its file, and no pass has been made since
	passes  int
}

// saved is the stored form of the index.
type saved struct {
	Session string `json:"session"`
	Lineage string `json:"lineage"`
	Seq     int64  `json:"seq"`
	// Base is the commit at the workspace's beginning; empty if there was none.
	Base string `json:"base,omitempty"`
	// Begun is set after the first pass.
	Begun bool `json:"begun"`
	// Empty is set if the lineage began with a worker that had stored no files.
	Empty   bool              `json:"empty"`
	Bounded int64             `json:"bounded,omitempty"` // number of the report that not all files are tracked
	Entries map[string]*entry `json:"entries,omitempty"`
}

// entry is a file, existing or deleted.
type entry struct {
	Stat    stat                  `json:"stat"`
	SHA256  string                `json:"sha256,omitempty"`
	Unsaved workspacefile.Unsaved `json:"unsaved,omitempty"`
	Seq     int64                 `json:"seq,omitempty"` // of the last report; 0 if never reported in this lineage
	Deleted bool                  `json:"deleted,omitempty"`
	Initial bool                  `json:"initial,omitempty"` // existed at the beginning and is not reported yet
	Known   bool                  `json:"known,omitempty"`   // the worker has this state
	Racy    bool                  `json:"racy,omitempty"`    // its times may not show a later write
	// First is the checksum of its content at the session's beginning, of FirstSize bytes; empty if
	// it did not exist or has no copy.
	First     string `json:"first,omitempty"`
	FirstSize int64  `json:"firstSize,omitempty"`
	// There is set if it existed at the beginning, with a copy or without.
	There bool `json:"there,omitempty"`

	hold time.Duration
	next time.Time
	pass int // the last one that has found it
}

// Open reads the index in dir of the workspace root. If it is missing or unreadable, the index is
// empty.
func Open(root, dir string) *Index {
	i := &Index{root: root, dir: dir, limit: workspacefile.MaxWatched}
	var err error
	if i.s, err = readSaved(dir); err != nil || i.s.Entries == nil {
		i.s = saved{Entries: map[string]*entry{}}
	}
	i.kept = len(i.s.Entries) > 0
	for _, e := range i.s.Entries {
		i.used += e.kept()
	}
	return i
}

func (i *Index) firstFile(sum string) string { return filepath.Join(i.dir, "first", sum) }

// kept returns how many bytes of a file's content the worker has stored.
func (e *entry) kept() int64 {
	if e.Deleted || e.Unsaved != "" || !e.Known && e.Seq == 0 {
		return 0
	}
	return e.Stat.Size
}

// Continues reports whether the index continues from a worker's position.
func (i *Index) Continues(p workspacefile.Position) bool {
	if i.s.Session != p.Session || i.s.Lineage == "" {
		return false
	}
	if p.Lineage == "" {
		return i.s.Empty
	}
	return p.Lineage == i.s.Lineage && p.Seq <= i.s.Seq
}

// Files returns about how many files the next pass has to look at.
func (i *Index) Files() int { return len(i.s.Entries) }

// Seq returns the number of the newest reported change.
func (i *Index) Seq() int64 { return i.s.Seq }

// Lineage returns the name of the index's lineage.
func (i *Index) Lineage() string { return i.s.Lineage }

// Base returns the commit at the workspace's beginning.
func (i *Index) Base() string { return i.s.Base }

// Resume resumes from a position that the index continues: later changes are reported again.
func (i *Index) Resume(p workspacefile.Position) {
	for _, e := range i.s.Entries {
		e.hold, e.next = 0, time.Time{}
		if e.Seq > p.Seq {
			e.Known = false
		}
	}
	if i.s.Bounded > p.Seq {
		i.s.Bounded = 0
	}
	i.forget(p.Seq)
}

// Begin starts a lineage with the files that a worker has stored, which are none when the session
// begins. The first contents are kept while session and disk stay the same.
func (i *Index) Begin(p workspacefile.Position, known []workspacefile.Known) {
	before := i.s
	i.s = saved{Session: p.Session, Lineage: newLineage(), Base: p.Base, Empty: p.Lineage == "", Entries: map[string]*entry{}}
	i.used, i.unsaved = 0, true
	if p.Lineage != "" && before.Session == p.Session && before.Begun {
		i.s.Begun, i.s.Base = true, before.Base
		for path, e := range before.Entries {
			if e.There {
				i.s.Entries[path] = &entry{First: e.First, FirstSize: e.FirstSize, There: true, Deleted: true, Known: true}
			}
		}
	}
	for _, k := range known {
		e := i.s.Entries[k.Path]
		if e == nil {
			e = &entry{}
			i.s.Entries[k.Path] = e
		}
		e.SHA256, e.Unsaved, e.Known, e.Deleted = k.SHA256, k.Unsaved, true, false
		e.Stat = stat{Size: k.Size, Mode: k.Mode}
		i.used += e.kept()
	}
}

func newLineage() string {
	b := make([]byte, 8)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Pass compares the workspace with the index and collects the changes for [Index.Report]. watch, if
// not nil, is called with each directory before it is read. With force, because a session waits for the
// pass, recently changed files are not held back, and Listers directories are read at the same time. It
// reports whether there is anything to report.
func (i *Index) Pass(force bool, watch func(dir string)) (bool, error) {
	waited := force && i.s.Bounded == 0 // beyond a bound, two readers would have to walk twice
	return i.pass(force, &Scan{root: i.root, limit: i.limit, watch: watch, waited: waited})
}

// List is Pass that also lists everything in the workspace, in the same pass over it. The listing is valid until the next pass.
func (i *Index) List(force bool, watch func(dir string)) (*Listing, bool, error) {
	s := &Scan{root: i.root, limit: i.limit, watch: watch, all: newGathering(), waited: force}
	found, err := i.pass(force, s)
	return s.all.listing(i.root, i.s.Entries), found, err
}

// pass is a pass that scans the workspace, unless the scan is done.
func (i *Index) pass(force bool, s *Scan) (bool, error) {
	i.passes++
	first := !i.s.Begun
	if first && i.s.Base == "" {
		i.s.Base = HeadOf(i.root).Commit
	}
	w, err := s.walk()
	if err != nil {
		return false, err
	}
	i.todo, i.gone, i.force, i.held = i.todo[:0], map[string]bool{}, force, false
	live := 0
	exists := func(path string, e *entry, now stat) {
		live++
		e.pass, e.There = i.passes, e.There || first
		switch {
		case i.kept && e.same(now):
			e.Stat = now // the index need not be written again: it serves as well on the next disk
		case e.Deleted || !e.Known || e.Racy || now != e.Stat:
			i.consider(path, e)
		}
	}
	type file struct {
		path string
		stat stat
	}
	var added []file
	w.each(func(path string, now stat) {
		switch e := i.s.Entries[path]; {
		case e == nil:
			added = append(added, file{path, now})
		case e.pass != i.passes:
			exists(path, e, now)
		}
	})
	if live < len(i.s.Entries) {
		for path, e := range i.s.Entries {
			if e.pass == i.passes {
				continue
			}
			if w.bounded.Load() && !e.Deleted {
				if now, ok := i.lookAt(path); ok { // it is only beyond the bound of the list
					exists(path, e, now)
					continue
				}
			}
			if !e.Deleted || !e.Known {
				i.gone[path] = true
				i.consider(path, e)
			}
		}
	}
	for _, f := range added {
		if i.s.Entries[f.path] != nil { // the walk has found it twice
			continue
		}
		if live >= i.limit {
			w.bounded.Store(true)
			break
		}
		live++
		e := &entry{pass: i.passes}
		if first {
			e.Stat, e.Initial, e.There = f.stat, i.s.Empty, true
		}
		i.s.Entries[f.path] = e
		i.consider(f.path, e)
	}
	i.kept = false
	if first {
		i.begun()
	}
	if w.bounded.Load() && i.s.Bounded == 0 {
		i.s.Bounded = -1 // still to be reported
	}
	slices.Sort(i.todo)
	return len(i.todo) > 0 || i.s.Bounded < 0, nil
}

// same reports whether a file that was restored from a snapshot is that of the entry. Like the
// comparison of a tree, it ignores inode and time of change, because every file of a new disk has a
// new inode and the time of its restore.
func (e *entry) same(now stat) bool {
	return e.Known && !e.Deleted && !e.Racy && now != e.Stat &&
		now.Size == e.Stat.Size && now.Modified == e.Stat.Modified && now.Mode == e.Stat.Mode
}

// Prepare makes the first pass over a restored workspace in advance, with a scan of it, and reports
// whether it did: the index may not be kept.
func (i *Index) Prepare(s *Scan) bool {
	if !i.kept || !i.s.Begun {
		return false
	}
	_, err := i.pass(true, s)
	return err == nil
}

// Passes returns the number of passes so far. Each pass checks every file, and prompts and
// hibernations wait for it.
func (i *Index) Passes() int { return i.passes }

// Current reports whether a worker at a position lacks only the changes that the last pass has
// found.
func (i *Index) Current(p workspacefile.Position) bool {
	return i.Continues(p) && p.Lineage == i.s.Lineage && p.Seq == i.s.Seq
}

// consider adds a file to the list for [Index.Report], unless the file is held back.
func (i *Index) consider(path string, e *entry) {
	if !i.force && e.hold > 0 && time.Now().Before(e.next) {
		i.held = true
		return
	}
	i.todo = append(i.todo, path)
}

// Held reports whether the last pass held a file back, so that another pass is due.
func (i *Index) Held() bool { return i.held }

// begun ends the first pass: if the workspace began without a commit, it copies the files.
func (i *Index) begun() {
	i.s.Begun, i.unsaved = true, true
	if i.s.Base != "" {
		return
	}
	room := int64(workspacefile.MaxSavedBytes)
	for path, e := range i.s.Entries {
		if !e.There || e.First != "" {
			continue
		}
		got, err := i.read(path)
		if err != nil || got.data == nil || int64(len(got.data)) > room {
			continue
		}
		if err := i.keepFirst(got.sum, got.data); err != nil {
			continue // it cannot be compared later
		}
		e.First, e.FirstSize = got.sum, int64(len(got.data))
		room -= e.FirstSize
	}
}

func (i *Index) keepFirst(sum string, data []byte) error {
	name := i.firstFile(sum)
	if _, err := os.Stat(name); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o600)
}

// lookAt returns the metadata of one file, or false if it does not exist.
func (i *Index) lookAt(path string) (stat, bool) {
	root, err := os.OpenRoot(i.root)
	if err != nil {
		return stat{}, false
	}
	defer root.Close() // opened only for reading
	info, err := root.Lstat(filepath.FromSlash(path))
	if err != nil || !info.Mode().IsRegular() {
		return stat{}, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stat{}, false
	}
	return stat{
		Size: st.Size, Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano(), Inode: st.Ino, Mode: st.Mode & 0o777,
	}, true
}

// openFile opens a regular file without blocking and without following a link in its last path
// element.
func openFile(root *os.Root, path string) (*os.File, error) {
	return root.OpenFile(filepath.FromSlash(path), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
}

func statFile(f *os.File) (stat, error) {
	var st unix.Stat_t
	raw, err := f.SyscallConn()
	if err != nil {
		return stat{}, err
	}
	cerr := raw.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &st) })
	if err := errors.Join(cerr, err); err != nil {
		return stat{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return stat{}, fs.ErrInvalid
	}
	return statOf(&st), nil
}

// reading is the content of a file as read.
type reading struct {
	stat stat
	sum  string // empty if not read to the end
	data []byte // nil if larger than workspacefile.MaxBytes
	racy bool
}

var errMoving = errors.New("the file is being written")

// read reads a file. It returns errMoving if the file changed meanwhile.
func (i *Index) read(path string) (reading, error) {
	root, err := os.OpenRoot(i.root)
	if err != nil {
		return reading{}, err
	}
	defer root.Close() // opened only for reading
	f, err := openFile(root, path)
	if err != nil {
		return reading{}, err
	}
	defer f.Close() // opened only for reading
	before := time.Now()
	r := reading{}
	if r.stat, err = statFile(f); err != nil {
		return r, err
	}
	if r.stat.Size > maxHashed {
		return r, nil
	}
	sum := sha256.New()
	var n int64
	if r.stat.Size <= workspacefile.MaxBytes {
		r.data, err = io.ReadAll(io.LimitReader(f, r.stat.Size+1))
		n = int64(len(r.data))
		sum.Write(r.data)
	} else {
		n, err = io.Copy(sum, io.LimitReader(f, r.stat.Size+1))
	}
	if err != nil {
		return r, err
	}
	after, err := statFile(f)
	if err != nil {
		return r, err
	}
	if after.Size != r.stat.Size || after.Modified != r.stat.Modified || n != r.stat.Size {
		return r, errMoving
	}
	r.sum, r.racy = hex.EncodeToString(sum.Sum(nil)), r.stat.racy(before)
	return r, nil
}

// Report sends the findings of the last pass, one change after the other, and returns the error of
// send. The next pass finds unsent changes again.
func (i *Index) Report(send func(workspacefile.Change) error, bounded func(seq int64) error) error {
	if i.s.Bounded < 0 {
		if err := bounded(i.s.Seq + 1); err != nil {
			return err
		}
		i.s.Seq++
		i.s.Bounded, i.unsaved = i.s.Seq, true
	}
	for len(i.todo) > 0 {
		path := i.todo[0]
		i.todo = i.todo[1:]
		if err := i.report(path, send); err != nil {
			return err
		}
	}
	return nil
}

func (i *Index) report(path string, send func(workspacefile.Change) error) error {
	e := i.s.Entries[path]
	if i.gone[path] { // or ignored by now
		return i.reportDeleted(path, e, send)
	}
	got, err := i.read(path)
	switch {
	case errors.Is(err, errMoving) && !i.force:
		e.back(time.Now())
		i.held = true
		return nil
	case err != nil:
		s, exists := i.lookAt(path)
		if !exists {
			return i.reportDeleted(path, e, send)
		}
		got = reading{stat: s} // unreadable, or changing all the time: listed without content
	}
	same := !e.Deleted && e.SHA256 == got.sum && e.Stat.Size == got.stat.Size && e.Stat.Mode == got.stat.Mode &&
		(got.sum != "" || e.Stat.Modified == got.stat.Modified)
	if e.Known && same {
		e.Stat, e.Racy, i.unsaved = got.stat, got.racy, true
		return nil
	}
	change := workspacefile.Change{
		Kind: workspacefile.Modified, Seq: i.s.Seq + 1,
		Initial: e.Initial && (e.Stat == got.stat || e.SHA256 != "" && e.SHA256 == got.sum),
		Content: workspacefile.Content{Info: workspacefile.Info{
			Path: path, Size: got.stat.Size, SHA256: got.sum, Mode: got.stat.Mode, ModifiedAt: time.Unix(0, got.stat.Modified).UTC(),
		}, Data: got.data},
	}
	if e.Deleted || !e.Known && e.Seq == 0 && !e.There {
		change.Kind = workspacefile.Created
	}
	if e.SHA256 != got.sum && e.Stat.Size == got.stat.Size && e.Stat.Modified == got.stat.Modified {
		forgetTree(i.dir) // it describes the file by the same size and time, with another checksum
	}
	was := e.kept()
	switch {
	case err != nil:
		change.Unsaved = workspacefile.UnsavedUnreadable
	case got.stat.Size > workspacefile.MaxBytes:
		change.Unsaved = workspacefile.UnsavedTooLarge
	case i.used-was+got.stat.Size > workspacefile.MaxSavedBytes:
		change.Unsaved = workspacefile.UnsavedFull
	}
	if change.Unsaved != "" {
		change.Data = nil
	}
	if err := send(change); err != nil {
		return err
	}
	i.s.Seq++
	e.Stat, e.SHA256, e.Unsaved, e.Racy = got.stat, got.sum, change.Unsaved, got.racy
	// A file reported as initial may have to be reported as initial again.
	e.Seq, e.Known, e.Deleted, e.Initial = i.s.Seq, true, false, change.Initial
	e.back(time.Now())
	i.used += e.kept() - was
	i.unsaved = true
	return nil
}

func (i *Index) reportDeleted(path string, e *entry, send func(workspacefile.Change) error) error {
	if e.Deleted && e.Known {
		return nil
	}
	if !e.Known && e.Seq == 0 && !e.There { // created and deleted in between
		delete(i.s.Entries, path)
		return nil
	}
	change := workspacefile.Change{Kind: workspacefile.Deleted, Seq: i.s.Seq + 1}
	change.Path = path
	if err := send(change); err != nil {
		return err
	}
	i.s.Seq++
	i.used -= e.kept()
	e.Seq, e.Known, e.Deleted, e.Initial, e.Racy = i.s.Seq, true, true, false, false
	e.SHA256, e.Unsaved, e.Stat = "", "", stat{}
	i.unsaved = true
	return nil
}

// back holds a file back, with a longer delay each time.
func (e *entry) back(now time.Time) {
	e.hold = min(max(2*e.hold, minHold), maxHold)
	e.next = now.Add(e.hold)
}

// forget drops deleted files that the worker has stored, up to seq.
func (i *Index) forget(seq int64) {
	for path, e := range i.s.Entries {
		if e.Deleted && e.Known && e.Seq <= seq && !e.There {
			delete(i.s.Entries, path)
		}
	}
}

// Save stores the index if it has changed.
func (i *Index) Save() error {
	if !i.unsaved {
		return nil
	}
	if err := writeSaved(i.dir, i.s); err != nil {
		return fmt.Errorf("keep the index of the workspace: %w", err)
	}
	i.unsaved = false
	return nil
}
