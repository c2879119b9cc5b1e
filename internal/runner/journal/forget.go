package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stubSize bounds the log of a run whose frames were discarded: magic and marks.
const stubSize = int64(len(magic) + 4*(recordHeader+bodyHeader))

// Runs are the runs of one directory, of which the newest keep their frames. The zero value is ready. It is
// not safe for concurrent use.
type Runs struct {
	whole  []wholeRun // runs with frames, oldest first
	listed bool       // whole includes the runs of earlier processes
}

// wholeRun is a run whose log is no stub.
type wholeRun struct {
	name    string
	marks   []Mark // of its stub; nil if its log must be read for them
	indexed bool   // a runner of an earlier version stored an index
}

// Add adds a run whose journal was created.
func (r *Runs) Add(run string) { r.whole = append(r.whole, wholeRun{name: run}) }

// End notes the state of a run's final journal, so that Forget need not read its log.
func (r *Runs) End(j *Journal) {
	status := j.Status()
	i := slices.IndexFunc(r.whole, func(w wholeRun) bool { return w.name == j.run })
	if i >= 0 && status.Mark.Final() {
		r.whole[i].marks = stubMarks(status)
	}
}

// Forget discards the frames of all runs except the newest keep. For each of the others it leaves a
// stub that records whether the prompt was delivered, because a run that is started again must
// never look like a new one. None of the shortened journals may be read or written any more. Only the
// first call reads the directory, because a session may have thousands of stubs, and each turn calls
// Forget. A run that could not be shortened is tried again by the next call.
func (r *Runs) Forget(dir string, keep int) error {
	if !r.listed {
		earlier, err := whole(dir)
		if err != nil {
			return fmt.Errorf("forget old runs: %w", err)
		}
		earlier = slices.DeleteFunc(earlier, func(e wholeRun) bool {
			return slices.ContainsFunc(r.whole, func(w wholeRun) bool { return w.name == e.name })
		})
		r.whole, r.listed = append(earlier, r.whole...), true
	}
	var errs []error
	old := len(r.whole) - keep
	kept := make([]wholeRun, 0, len(r.whole))
	for i, run := range r.whole {
		if i < old {
			err := run.shorten(dir)
			if err == nil {
				continue
			}
			errs = append(errs, fmt.Errorf("forget run %s: %w", run.name, err))
		}
		kept = append(kept, run)
	}
	r.whole = kept
	return errors.Join(errs...)
}

// whole returns the runs of a directory whose logs are no stubs, oldest first.
func whole(dir string) ([]wholeRun, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	type log struct {
		run string
		at  time.Time
	}
	var logs []log
	indexed := map[string]bool{}
	for _, e := range entries {
		if run, isIndex := strings.CutSuffix(e.Name(), ".idx"); isIndex {
			indexed[run] = true
		}
		run, isLog := strings.CutSuffix(e.Name(), ".log")
		info, err := e.Info()
		if isLog && err == nil && info.Size() > stubSize {
			logs = append(logs, log{run, info.ModTime()})
		}
	}
	slices.SortFunc(logs, func(a, b log) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.run, b.run))
	})
	runs := make([]wholeRun, len(logs))
	for i, l := range logs {
		runs[i] = wholeRun{name: l.run, indexed: indexed[l.run]}
	}
	return runs, nil
}

// shorten replaces the log of a run by its stub, unless it is short already or has been deleted.
func (w wholeRun) shorten(dir string) error {
	base := filepath.Join(dir, w.name)
	write := writeStub
	if w.marks == nil {
		// The log is of an earlier process, and after a restore a part of the image, which the file
		// system would copy as a whole before the first write to it.
		write = replaceByStub
		info, err := os.Lstat(base + ".log")
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() <= stubSize {
			return nil
		}
		j, err := Open(dir, w.name)
		if err != nil {
			return err
		}
		w.marks = stubMarks(j.Status())
		if err := j.Close(); err != nil {
			return err
		}
	}
	if err := write(base+".log", w.marks); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if !w.indexed {
		return nil
	}
	if err := os.Remove(base + ".idx"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// stubMarks returns the marks of a stub.
func stubMarks(s Status) []Mark {
	if s.Delivered && s.Mark != Cut {
		return []Mark{Delivering, Delivered, Closed}
	}
	return []Mark{Delivering, Cut}
}

// writeStub writes marks over the first records of a log and truncates it after them. The last mark
// is final, and readers stop at it, so the log reads as the stub from the write on, whether or not it
// is truncated. A crash of the machine may lose the write, or leave only its first part: then the log
// is that of a run whose end is missing, which counts as cut unless its prompt was delivered.
func writeStub(path string, marks []Mark) error {
	stub := stubOf(marks)
	f, err := openFile(path, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(stub, 0)
	if err == nil {
		err = f.Truncate(int64(len(stub)))
	}
	return errors.Join(err, f.Close())
}

// replaceByStub replaces a log by a new file with the marks. A crash of the machine may lose the
// change.
func replaceByStub(path string, marks []Mark) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(stubOf(marks))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func stubOf(marks []Mark) []byte {
	stub := []byte(magic)
	for _, m := range marks {
		stub = appendMark(stub, m, time.Now())
	}
	return stub
}

// Overwrite writes data over the beginning of a file, which it creates if necessary. It is for data
// of less than one block of a file: one system call writes it, and the death of the process does not
// divide it. Replacing the file by a new one would cost many times as much.
func Overwrite(path string, data []byte) error {
	const flags = os.O_WRONLY | os.O_CREATE | unix.O_NOFOLLOW | unix.O_NONBLOCK // does not wait, even for a pipe
	f, err := openFile(path, flags)
	if err != nil && os.Remove(path) == nil { // it was no file
		f, err = openFile(path, flags)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	return errors.Join(err, f.Close())
}
