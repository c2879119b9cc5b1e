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
	// maxHashed is the largest file that is read to know whether it is the same;
	// of a larger one size and time say so.
	maxHashed = 64 << 20
	// A file that keeps changing is reported after a second, then after two, and so on up to half a
	// minute: a log that grows is not sent a hundred times.
	minHold, maxHold = time.Second, 30 * time.Second
	// maxSaved and maxGitIndex bound what is read of the index's own file, and of git's.
	maxSaved, maxGitIndex = 256 << 20, 256 << 20
)

// Index is what a worker knows of a workspace. It is for one goroutine.
type Index struct {
	root  string // the workspace
	dir   string // where the index and the first contents are kept
	limit int    // of files

	s       saved
	used    int64 // bytes of content that were reported
	unsaved bool  // it differs from its file
	todo    []string
	gone    map[string]bool // of those, what is not seen any more
	force   bool            // the pass under way holds nothing back
	held    bool            // something was held back
}

// saved is the form of the index on disk.
type saved struct {
	Session string `json:"session"`
	Lineage string `json:"lineage"`
	Seq     int64  `json:"seq"`
	// Base is the commit that the workspace began with; empty when it had none.
	Base string `json:"base,omitempty"`
	// Begun: the first pass has been made.
	Begun bool `json:"begun"`
	// Empty: the lineage began with a worker that knew of no files.
	Empty   bool              `json:"empty"`
	Bounded int64             `json:"bounded,omitempty"` // the number of the report that not everything is watched
	Entries map[string]*entry `json:"entries,omitempty"`
}

// entry is one file, or one that is gone.
type entry struct {
	Stat    stat                  `json:"stat"`
	SHA256  string                `json:"sha256,omitempty"`
	Unsaved workspacefile.Unsaved `json:"unsaved,omitempty"`
	Seq     int64                 `json:"seq,omitempty"` // of the last report; 0: never, or known to the worker before
	Deleted bool                  `json:"deleted,omitempty"`
	Initial bool                  `json:"initial,omitempty"` // there at the beginning and not reported yet
	Known   bool                  `json:"known,omitempty"`   // the worker has this state of it
	Racy    bool                  `json:"racy,omitempty"`    // its times cannot show a later write
	// First is the sum of what it held at the session's beginning, of FirstSize
	// bytes; empty when it was not there or has no copy.
	First     string `json:"first,omitempty"`
	FirstSize int64  `json:"firstSize,omitempty"`
	// There: it was there at the beginning, with a copy or without.
	There bool `json:"there,omitempty"`

	hold time.Duration
	next time.Time
}

// Open reads the index that is kept in dir of the workspace root. One that is not
// there, or cannot be read, is empty.
func Open(root, dir string) *Index {
	i := &Index{root: root, dir: dir, limit: workspacefile.MaxWatched}
	var err error
	if i.s, err = readSaved(dir); err != nil || i.s.Entries == nil {
		i.s = saved{Entries: map[string]*entry{}}
	}
	for _, e := range i.s.Entries {
		i.used += e.kept()
	}
	return i
}

func (i *Index) firstFile(sum string) string { return filepath.Join(i.dir, "first", sum) }

// kept is how many bytes of content the worker has of a file.
func (e *entry) kept() int64 {
	if e.Deleted || e.Unsaved != "" || !e.Known && e.Seq == 0 {
		return 0
	}
	return e.Stat.Size
}

// Continues reports whether the index continues from what a worker has stored.
func (i *Index) Continues(p workspacefile.Position) bool {
	if i.s.Session != p.Session || i.s.Lineage == "" {
		return false
	}
	if p.Lineage == "" {
		return i.s.Empty
	}
	return p.Lineage == i.s.Lineage && p.Seq <= i.s.Seq
}

// Seq is the number of the newest change that was reported.
func (i *Index) Seq() int64 { return i.s.Seq }

// Lineage names the history that the index is part of.
func (i *Index) Lineage() string { return i.s.Lineage }

// Base is the commit that the workspace began with.
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

// Begin starts a lineage with what a worker knows, which is nothing where the
// session begins. What was there first is remembered as long as the session and
// the disk are the same.
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

// Pass compares the workspace with the index and remembers what [Index.Report] has to report. watch, if it is
// not nil, is called with each directory before it is read. With force nothing is held back for
// having changed a moment ago. It reports whether there is anything for it.
func (i *Index) Pass(force bool, watch func(dir string)) (bool, error) {
	first := !i.s.Begun
	if first && i.s.Base == "" {
		i.s.Base = HeadOf(i.root).Commit
	}
	w, err := walk(i.root, i.limit, watch)
	if errors.Is(err, fs.ErrNotExist) {
		w, err = &walker{files: map[string]stat{}}, nil
	}
	if err != nil {
		return false, fmt.Errorf("look through the workspace: %w", err)
	}
	i.todo, i.gone, i.force, i.held = i.todo[:0], map[string]bool{}, force, false
	live := 0
	for path, e := range i.s.Entries {
		now, there := w.files[path]
		if !there && w.bounded && !e.Deleted {
			now, there = i.lookAt(path) // it may only have been pushed out of the list
		}
		delete(w.files, path)
		switch {
		case there:
			live++
			e.There = e.There || first
			if e.Deleted || !e.Known || e.Racy || now != e.Stat {
				i.consider(path, e)
			}
		case !e.Deleted || !e.Known:
			i.gone[path] = true
			i.consider(path, e)
		}
	}
	for path, now := range w.files {
		if live >= i.limit {
			w.bounded = true
			break
		}
		live++
		e := &entry{}
		if first {
			e.Stat, e.Initial, e.There = now, i.s.Empty, true
		}
		i.s.Entries[path] = e
		i.consider(path, e)
	}
	if first {
		i.begun()
	}
	if w.bounded && i.s.Bounded == 0 {
		i.s.Bounded = -1 // to be reported
	}
	slices.Sort(i.todo)
	return len(i.todo) > 0 || i.s.Bounded < 0, nil
}

// consider adds a file to those of [Index.Report], unless it is held back.
func (i *Index) consider(path string, e *entry) {
	if !i.force && e.hold > 0 && time.Now().Before(e.next) {
		i.held = true
		return
	}
	i.todo = append(i.todo, path)
}

// Held reports whether the last pass held something back, so that another one is due.
func (i *Index) Held() bool { return i.held }

// begun ends the first pass: where no commit has what the workspace began with,
// copies are made.
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
			continue // then there is nothing to compare with
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

// lookAt is the state of one file; false when there is none.
func (i *Index) lookAt(path string) (stat, bool) {
	root, err := os.OpenRoot(i.root)
	if err != nil {
		return stat{}, false
	}
	defer root.Close() // only read
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

// openFile opens a regular file without waiting for anything and without
// following a link in its last part.
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

// reading is a file as it was read.
type reading struct {
	stat stat
	sum  string // empty where it was not read to its end
	data []byte // nil where it is larger than workspacefile.MaxBytes
	racy bool
}

var errMoving = errors.New("the file is being written")

// read reads a file. errMoving: it changed meanwhile.
func (i *Index) read(path string) (reading, error) {
	root, err := os.OpenRoot(i.root)
	if err != nil {
		return reading{}, err
	}
	defer root.Close() // only read
	f, err := openFile(root, path)
	if err != nil {
		return reading{}, err
	}
	defer f.Close() // only read
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

// Report sends what the last pass found to send, one change after the other, and
// returns its error. What was not sent is found again by the next pass.
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
	if i.gone[path] { // or ignored since
		return i.reportDeleted(path, e, send)
	}
	got, err := i.read(path)
	switch {
	case errors.Is(err, errMoving) && !i.force:
		e.back(time.Now())
		i.held = true
		return nil
	case err != nil:
		s, there := i.lookAt(path)
		if !there {
			return i.reportDeleted(path, e, send)
		}
		got = reading{stat: s} // unreadable, or never at rest: it is listed without content
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
	// What was reported as initial may have to be reported as initial again.
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
	if !e.Known && e.Seq == 0 && !e.There { // it came and went
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

// back holds a file back for longer each time.
func (e *entry) back(now time.Time) {
	e.hold = min(max(2*e.hold, minHold), maxHold)
	e.next = now.Add(e.hold)
}

// forget lets go of files that are gone, of which the worker knows up to seq.
func (i *Index) forget(seq int64) {
	for path, e := range i.s.Entries {
		if e.Deleted && e.Known && e.Seq <= seq && !e.There {
			delete(i.s.Entries, path)
		}
	}
}

// Save writes the index down, where it has changed.
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
